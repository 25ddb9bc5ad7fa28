//! Files, in the directories that the operator mounts.
//!
//! The sandbox decides what can be reached; nothing here checks paths for safety. What is checked is size, so that one call does not
//! return more than a model can read.

mod list;
mod place;
mod read;
mod search;
mod write;

use list::ListFiles;
use read::ReadFile;
use search::SearchFiles;
use write::WriteFile;

honeycomb_sdk::export!(ListFiles, ReadFile, SearchFiles, WriteFile);
honeycomb_sdk::requests!("../requests.toml");
