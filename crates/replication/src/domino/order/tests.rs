//! Small worlds of orders without a network.
