"""From a search space to trials: proposers, the loop, the budget, the verdict."""
