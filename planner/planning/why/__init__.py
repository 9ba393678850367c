"""Why a plan is what it is: what each op needs and what that costs, what else was possible, and a summary."""
