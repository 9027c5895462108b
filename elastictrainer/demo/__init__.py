"""The embedded adaptation task: a small network pre-trained on plain digits, and digits in another domain."""
