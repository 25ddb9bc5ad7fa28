//! The capability as a guest sees it, and the store under it.

mod crash;
mod grants;
mod quota;
mod store;

use std::sync::Arc;

use super::store::{KeyValueStore, OpenError, OperationError};

const QUOTA: u64 = 1 << 20;

fn plugin(name: &str) -> Arc<str> {
    name.into()
}

fn memory() -> KeyValueStore {
    KeyValueStore::open(None).expect("memory")
}

/// A store in a new directory, which is removed with the first.
fn file() -> (tempfile::TempDir, KeyValueStore) {
    let directory = tempfile::tempdir().expect("a directory");
    let store = KeyValueStore::open(Some(&directory.path().join("kv.sqlite"))).expect("a new file");
    (directory, store)
}

/// All keys, page by page.
async fn keys(store: &KeyValueStore, plugin: &Arc<str>) -> Vec<String> {
    let mut keys = Vec::new();
    let mut cursor = None;
    loop {
        let page = store.list(plugin, cursor).await.expect("a page");
        keys.extend(page.keys);
        cursor = page.next;
        if cursor.is_none() {
            return keys;
        }
    }
}
