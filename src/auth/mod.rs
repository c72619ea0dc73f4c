//! Who is asking, and may they.

pub mod action;
mod copy_source;
pub mod delete;
pub mod policy;
mod wildcard;

pub use copy_source::CopySource;
