//! Entries larger than their reservation: kept for their turn, gone on with, read anew, or broken.
use super::*;
