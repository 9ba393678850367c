"""Commands that the core does without; ``planner.feature`` says what the folder of each holds."""
