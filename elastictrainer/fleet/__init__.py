"""Fine-tune one model on many devices with Flower: each trains what it can within the time of a round."""
