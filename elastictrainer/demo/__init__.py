"""The embedded adaptation task: a small network pre-trained on digits in one domain, and digits in another domain."""
