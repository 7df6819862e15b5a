"""Parts of heads that are fitted to the training features, before or after training."""
