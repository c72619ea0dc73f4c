//! Deadlines in simulated time: what runs the clock, what stops it, and what is said at its end.
use super::*;
