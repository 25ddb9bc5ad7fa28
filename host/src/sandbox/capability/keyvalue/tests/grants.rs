use wasmtime::component::{Linker, Resource, ResourceTable};

use super::super::generated::wasi::keyvalue::atomics::{self, Host as _, HostCas as _};
use super::super::generated::wasi::keyvalue::store::{self as wit, Host as _, HostBucket as _};
use super::super::{Bucket, Error, KeyValue, KeyValueView, add_to_linker};
use super::*;
use crate::policy::{KvGrant, RuleRef};
use crate::sandbox::meter::Meter;

fn granted(quota_bytes: u64) -> Option<KvGrant> {
    Some(KvGrant { quota_bytes, rule: RuleRef { file: "policy.toml".into(), line: 3 } })
}

#[tokio::test]
async fn every_function_is_denied_without_a_grant() {
    let meter = Meter::default();
    let ctx = KeyValue::new(plugin("notes"), None, Some(memory()), meter.clone());
    let mut table = ResourceTable::new();
    // Even a guest that has a handle, as after a policy was taken away, gets nothing.
    let handle = table.push(Bucket(())).expect("room");
    let bucket = || Resource::new_own(handle.rep());
    let mut view = KeyValueView { ctx: &ctx, table: &mut table };
    let key = || "key".to_owned();
    let denied = [
        view.open(String::new()).await.map(drop),
        view.get(bucket(), key()).await.map(drop),
        view.set(bucket(), key(), vec![1]).await,
        view.delete(bucket(), key()).await,
        view.exists(bucket(), key()).await.map(drop),
        view.list_keys(bucket(), None).await.map(drop),
        view.increment(bucket(), key(), 1).await.map(drop),
        atomics::HostCas::new(&mut view, bucket(), key()).await.map(drop),
    ];
    for (index, result) in denied.into_iter().enumerate() {
        let error = result.expect_err("denied");
        assert!(matches!(view.convert_error(error), Ok(wit::Error::AccessDenied)), "{index}");
    }
    let denials = meter.counts().denials;
    assert_eq!(denials.len(), 1, "the same denial is kept once");
    assert_eq!(denials[0].code.as_str(), "cap.denied");
    assert_eq!(denials[0].message, "plugin `notes` may not use the key-value store: no rule grants it");
    assert_eq!(denials[0].hint.as_deref(), Some("to allow it, add to the policy:\n[plugins.notes.kv]\nquota = \"1MiB\""));
}

#[tokio::test]
async fn a_grant_opens_the_one_bucket_and_what_is_in_it() {
    let meter = Meter::default();
    let ctx = KeyValue::new(plugin("notes"), granted(100), Some(memory()), meter.clone());
    let mut table = ResourceTable::new();
    let mut view = KeyValueView { ctx: &ctx, table: &mut table };
    assert!(matches!(view.open("default".to_owned()).await, Err(Error::NoSuchStore)));
    let opened = view.open(String::new()).await.expect("granted");
    let bucket = || Resource::<Bucket>::new_own(opened.rep());
    view.set(bucket(), "笔记".to_owned(), "你好".as_bytes().to_vec()).await.expect("set");
    assert_eq!(view.get(bucket(), "笔记".to_owned()).await.expect("get"), Some("你好".as_bytes().to_vec()));
    assert!(view.exists(bucket(), "笔记".to_owned()).await.expect("exists"));
    assert_eq!(view.list_keys(bucket(), None).await.expect("a page").keys, ["笔记"]);
    view.delete(bucket(), "笔记".to_owned()).await.expect("deleted");
    assert_eq!(view.increment(bucket(), "count".to_owned(), 5).await.expect("a number"), 5);

    let cas = view.new(bucket(), "count".to_owned()).await.expect("a look");
    assert_eq!(view.current(Resource::new_own(cas.rep())).await.expect("seen"), Some(b"5".to_vec()));
    view.set(bucket(), "count".to_owned(), b"6".to_vec()).await.expect("set");
    let super::super::atomics::CasError::Changed(fresh) = view.swap(cas, b"7".to_vec()).await.expect_err("changed") else {
        panic!("the value has changed");
    };
    view.swap(fresh, b"8".to_vec()).await.expect("unchanged");
    assert_eq!(view.get(bucket(), "count".to_owned()).await.expect("get"), Some(b"8".to_vec()));
    assert!(meter.counts().denials.is_empty());

    let error = view.set(bucket(), "large".to_owned(), vec![0; 100]).await.expect_err("over the quota");
    let Ok(wit::Error::Other(text)) = view.convert_error(error) else { panic!("the guest is told why") };
    assert_eq!(text, "the key-value quota of 100 bytes is used up: this would make it 111");
    let denial = meter.counts().denials[0].clone();
    assert_eq!(denial.message, format!("plugin `notes`: {text} (policy.toml:3)"));
    assert_eq!(denial.hint.as_deref(), Some("raise it in the policy:\n[plugins.notes.kv]\nquota = …"));
    wit::HostBucket::drop(&mut view, opened).await.expect("open");
    assert!(matches!(view.get(Resource::new_own(0), "count".to_owned()).await, Err(Error::Trap(_))), "a dropped handle");
}

#[test]
fn the_interfaces_link() {
    struct State(KeyValue, ResourceTable);
    let engine = wasmtime::Engine::default();
    let mut linker = Linker::<State>::new(&engine);
    add_to_linker(&mut linker, |State(ctx, table)| KeyValueView { ctx, table }).expect("no name twice");
}
