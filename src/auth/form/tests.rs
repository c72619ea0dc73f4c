//! Forms from bytes to judgement.
