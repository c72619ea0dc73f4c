//! Single stories of batches, each a sentence of the contract.
use super::*;
