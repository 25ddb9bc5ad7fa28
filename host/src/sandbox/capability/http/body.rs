//! Bodies: bounded, counted, and on the way out looked through for secrets.

mod request;
mod response;

pub(super) use self::request::RequestBody;
pub(super) use self::response::ResponseBody;

/// The most empty pieces that are passed over before other tasks get a turn (GHSA-f8mm: they cost the sender nothing).
const MAX_EMPTY: usize = 64;
