//! Text: count, search, replace and compare.

mod count;
mod diff;
mod pattern;

use count::CountText;
use diff::DiffTexts;
use pattern::{FindText, ReplaceText};

honeycomb_sdk::export!(CountText, FindText, ReplaceText, DiffTexts);
honeycomb_sdk::requests!("../requests.toml");
