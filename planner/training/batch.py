def with_batch(forward, batch): raise NotImplementedError
