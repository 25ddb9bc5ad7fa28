//! Guests that misbehave in every way, each with the code that must come, and a good one that must still be served.

pub(crate) mod corpus;
mod crowd;
mod files;
mod fixture;
mod hostile;
