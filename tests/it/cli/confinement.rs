//! What granted plugins cannot reach: each case is a call that would work if one check were missing.

use honeycomb_tests::host::Host;
use honeycomb_tests::web::{WebServer, json as json_response, redirect};
use serde_json::json;

use super::{weather_policy, weather_responses};

fn files_policy(mode: &str) -> String {
    format!(
        "version = 1\n[[plugins.files.tools]]\nname = \"*\"\ndecision = \"allow\"\n\
         [[plugins.files.fs]]\nhost = \"data\"\nguest = \"/data\"\nmode = \"{mode}\"\n"
    )
}

#[test]
fn files_cannot_leave_the_mount() {
    let host = Host::new();
    let secret = host.write("secret.txt", "do not read");
    host.write("data/inside.txt", "read me");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(&secret, host.path().join("data/absolute")).expect("a link");
        std::os::unix::fs::symlink("../secret.txt", host.path().join("data/relative")).expect("a link");
        std::os::unix::fs::symlink("..", host.path().join("data/up")).expect("a link");
    }
    let host = host.policy(&files_policy("ro"));
    let (code, document) = host.call("files/read_file", &json!({"path": "/data/inside.txt"}));
    assert_eq!(code, 0, "{document}");
    let secret = secret.to_string_lossy().into_owned();
    for path in [
        "/data/../secret.txt",
        "../secret.txt",
        "/secret.txt",
        "/etc/passwd",
        secret.as_str(),
        "/data/absolute",
        "/data/relative",
        "/data/up/secret.txt",
        "/data/./../secret.txt",
        "/proc/self/environ",
    ] {
        let (code, document) = host.call("files/read_file", &json!({"path": path}));
        assert_eq!(code, 1, "{path}: {document}");
        assert!(!document.to_string().contains("do not read"), "{path}: {document}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_name_that_is_not_utf_8_hides_no_other_file() {
    use std::os::unix::ffi::OsStrExt as _;
    let host = Host::new();
    for name in ["data/a.txt", "data/乙.txt", "data/z.txt"] {
        host.write(name, "a needle");
    }
    for name in [&b"b\xff.txt"[..], b"\xe5\x8c", b"y\xc0\xaf"] {
        let path = host.path().join("data").join(std::ffi::OsStr::from_bytes(name));
        std::fs::write(path, "a needle").expect("written");
    }
    let host = host.policy(&files_policy("ro"));
    let (code, document) = host.call("files/list_files", &json!({"path": "/data"}));
    assert_eq!(code, 0, "{document}");
    let listing = &document["structured"];
    let names: Vec<_> =
        listing["entries"].as_array().expect("entries").iter().filter_map(|entry| entry["name"].as_str()).collect();
    assert_eq!((names, &listing["unnamed"]), (vec!["a.txt", "z.txt", "乙.txt"], &json!(3)), "{document}");
    let (code, document) = host.call("files/search_files", &json!({"path": "/data", "pattern": "needle"}));
    assert_eq!((code, document["structured"]["lines"].as_array().expect("lines").len()), (0, 3), "{document}");
}

#[test]
fn a_read_only_mount_is_not_written() {
    let host = Host::new();
    let file = host.write("data/inside.txt", "as it was");
    let host = host.policy(&files_policy("ro"));
    for path in ["/data/inside.txt", "/data/new.txt", "/data/new/deep.txt"] {
        let (code, document) = host.call("files/write_file", &json!({"path": path, "text": "changed", "if_exists": "replace"}));
        assert_eq!(code, 1, "{path}: {document}");
    }
    assert_eq!(std::fs::read_to_string(file).expect("still there"), "as it was");
    assert_eq!(std::fs::read_dir(host.path().join("data")).expect("a directory").count(), 1);
}

#[test]
fn a_writable_mount_is_written() {
    let host = Host::new();
    host.write("data/inside.txt", "as it was");
    let host = host.policy(&files_policy("rw"));
    let (code, document) = host.call("files/write_file", &json!({"path": "/data/笔记.txt", "text": "你好"}));
    assert_eq!(code, 0, "{document}");
    assert_eq!(std::fs::read_to_string(host.path().join("data/笔记.txt")).expect("written"), "你好");
}

#[test]
fn weather_reaches_no_other_host_port_scheme_method_or_path() {
    let server = WebServer::start(weather_responses());
    let port = server.port();
    let right = weather_policy(port);
    for (what, wrong) in [
        ("host", right.replace("host = \"127.0.0.1\"", "host = \"127.0.0.2\"")),
        ("port", right.replace(&format!("port = {port}\npath"), "port = 9\npath")),
        ("scheme", right.replace("scheme = \"http\"", "scheme = \"https\"")),
        ("method", right.replace("path = \"/v1/\"", "path = \"/v1/\"\nmethods = [\"POST\"]")),
        ("path", right.replace("path = \"/v1/\"", "path = \"/v2/\"")),
        ("no rule", right[..right.find("[[plugins.weather.net]]").expect("a rule")].to_owned()),
    ] {
        let (code, document) = Host::new().policy(&wrong).call("weather/get_weather", &json!({"city": "北京"}));
        assert_eq!(code, 1, "{what}: {document}");
        assert_eq!(document["error"]["code"], "http.denied", "{what}: {document}");
        assert!(
            document["error"]["hint"].as_str().is_some_and(|hint| hint.contains("[[plugins.weather.net]]")),
            "{what}: {document}"
        );
    }
    // Loopback needs to be named, also where the host is allowed.
    let unnamed = right.replace("private = [\"127.0.0.1/32\"]", "");
    let (code, document) = Host::new().policy(&unnamed).call("weather/get_weather", &json!({"city": "北京"}));
    assert_eq!((code, &document["error"]["code"]), (1, &json!("http.ip_prohibited")), "{document}");
    assert_eq!(server.requests(), Vec::<String>::new(), "nothing was sent");
}

#[test]
fn weather_does_not_follow_a_redirect_out_of_its_grant() {
    let elsewhere = WebServer::start([("/secret", json_response("{\"secret\":true}"))]);
    let away = redirect(&format!("http://127.0.0.1:{}/secret", elsewhere.port()));
    let server = WebServer::start([("/v1/search", away.clone()), ("/v1/forecast", away)]);
    let (code, document) =
        Host::new().policy(&weather_policy(server.port())).call("weather/get_weather", &json!({"city": "北京"}));
    assert_eq!(code, 1, "{document}");
    assert_eq!(server.requests().len(), 1);
    assert_eq!(elsewhere.requests(), Vec::<String>::new(), "the redirect was not followed");
}

#[test]
fn fetch_asks_again_for_each_hop_of_a_redirect() {
    let elsewhere = WebServer::start([("/secret", json_response("{\"secret\":true}"))]);
    let server = WebServer::start([("/page", redirect(&format!("http://127.0.0.1:{}/secret", elsewhere.port())))]);
    let port = server.port();
    let policy = format!(
        "version = 1\n[[plugins.fetch.tools]]\nname = \"fetch_page\"\ndecision = \"allow\"\n[[plugins.fetch.net]]\n\
         host = \"127.0.0.1\"\nscheme = \"http\"\nport = {port}\nprivate = [\"127.0.0.1/32\"]\n"
    );
    let url = format!("http://127.0.0.1:{port}/page");
    let (code, document) = Host::new().policy(&policy).call("fetch/fetch_page", &json!({"url": url}));
    assert_eq!((code, &document["error"]["code"]), (1, &json!("http.denied")), "{document}");
    assert_eq!(elsewhere.requests(), Vec::<String>::new());
}

#[test]
fn notes_need_a_grant_and_keep_to_their_quota() {
    let allow = "version = 1\n[[plugins.notes.tools]]\nname = \"*\"\ndecision = \"allow\"\n";
    let note = json!({"title": "a", "text": "x".repeat(3000)});
    let (code, document) = Host::new().policy(allow).call("notes/save_note", &note);
    assert_eq!((code, &document["error"]["code"]), (1, &json!("cap.denied")), "{document}");
    let host = Host::new().policy(&format!("{allow}[plugins.notes.kv]\nquota = \"4KiB\"\n"));
    assert_eq!(host.call("notes/save_note", &note).0, 0);
    let (code, document) = host.call("notes/save_note", &json!({"title": "b", "text": "x".repeat(3000)}));
    assert_eq!(code, 1, "{document}");
}

#[test]
fn a_secret_reaches_the_server_and_nobody_else() {
    const SECRET: &str = "s3cret-weather-token-42";
    const BASE64: &str = "czNjcmV0LXdlYXRoZXItdG9rZW4tNDI=";
    // A server that sends the secret back, plain and in base64.
    let echo = format!(
        r#"{{"results":[{{"name":"{SECRET}","latitude":39.9,"longitude":116.4,"country":"{BASE64}","timezone":"Asia/Shanghai"}}]}}"#
    );
    let forecast = weather_responses().remove(1).1;
    let server = WebServer::start([("/v1/search", json_response(&echo)), ("/v1/forecast", forecast)]);
    let policy = weather_policy(server.port()).replace(
        "path = \"/v1/\"",
        "path = \"/v1/\"\nsecret = { header = \"x-api-key\", format = \"Key {}\", source = \"env:WEATHER_KEY\" }",
    );
    let call = ["call", "weather/get_weather", "--args", "{\"city\":\"北京\"}", "--json", "-vvv"];
    // A missing secret refuses to start; it is not an empty header.
    let missing = Host::new().policy(&policy).run(&call);
    assert_eq!(missing.code, 2, "{missing:?}");
    assert!(missing.stdout.contains("WEATHER_KEY"), "{missing:?}");

    let ran = Host::new().policy(&policy).variable("WEATHER_KEY", SECRET).run(&call);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(
        server.requests().iter().all(|request| request.contains(&format!("x-api-key: Key {SECRET}"))),
        "{:?}",
        server.requests()
    );
    for form in [SECRET, BASE64.trim_end_matches('=')] {
        assert!(!ran.stdout.contains(form) && !ran.stderr.contains(form), "{form}: {ran:?}");
    }
    assert!(ran.stdout.contains("[secret]"), "{ran:?}");
}

#[cfg(unix)]
#[test]
fn no_mount_hands_over_what_decides_on_rights() {
    let tools = "[[plugins.files.tools]]\nname = \"*\"\ndecision = \"allow\"\n";
    let mount = |host: &str, mode: &str| {
        format!("version = 1\n{tools}[[plugins.files.fs]]\nhost = \"{host}\"\nguest = \"/p\"\nmode = \"{mode}\"\n")
    };
    let secret = "[[plugins.weather.net]]\nhost = \"api.open-meteo.com\"\n\
                  secret = { header = \"x-api-key\", format = \"{}\", source = \"file:inside/token\" }\n";
    for (what, policy) in [
        ("the policy, by a link to its directory", mount("link", "rw")),
        ("the plugins, by a link", mount("plugins-link", "rw")),
        ("the state directory", mount("state", "rw")),
        ("the state directory, to read", mount("state", "ro")),
        ("a secret, by a link", mount("inside-link", "ro") + secret),
        ("the grants, by a link, to read", mount("grants-link", "ro")),
    ] {
        let host = Host::new();
        host.write("inside/token", "0123456789");
        host.write("state/honeycomb/keep", "");
        std::os::unix::fs::symlink(".", host.path().join("link")).expect("a link");
        std::os::unix::fs::symlink("inside", host.path().join("inside-link")).expect("a link");
        host.write("approved/grants.toml", "version = 1\n");
        std::os::unix::fs::symlink("approved", host.path().join("grants-link")).expect("a link");
        std::os::unix::fs::symlink(honeycomb_tests::host::plugins_dir(), host.path().join("plugins-link")).expect("a link");
        let host = host.policy(&policy);
        let before = std::fs::read(host.path().join("policy0.toml")).expect("the policy");
        let ran = host.run(&["call", "files/list_files", "--args", "{\"path\":\"/p\"}", "--grants", "approved/grants.toml"]);
        assert_eq!(ran.code, 2, "{what}: {ran:?}");
        assert!(ran.stderr.contains("cannot be"), "{what}: {ran:?}");
        assert_eq!(std::fs::read(host.path().join("policy0.toml")).expect("the policy"), before, "{what}");
    }
}
