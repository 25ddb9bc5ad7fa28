//! The program as scripts and people use it: real plugins, real HTTP on loopback, a scripted model server.

mod agent;
mod audit;
mod bad_input;
mod calls;
mod config;
mod confinement;
mod ends;
mod killed;
mod limits;
mod memory;
mod policies;
mod reload;
mod replay;
mod resume;
mod rights;
mod sessions;
mod slow_reader;
mod workers;

/// What `weather` needs to reach a server on loopback, and nothing else.
fn weather_policy(port: u16) -> String {
    format!(
        r#"
version = 1
[plugins.weather.config]
base_url = "http://127.0.0.1:{port}"
geocoding_url = "http://127.0.0.1:{port}"
[[plugins.weather.tools]]
name = "get_weather"
decision = "allow"
[[plugins.weather.net]]
host = "127.0.0.1"
scheme = "http"
port = {port}
path = "/v1/"
private = ["127.0.0.1/32"]
"#
    )
}

/// Answers in the shape of Open-Meteo: one place, one fair day.
fn weather_responses() -> Vec<(&'static str, String)> {
    let search = r#"{"results":[{"name":"北京","latitude":39.9,"longitude":116.4,"country":"中国","timezone":"Asia/Shanghai"}]}"#;
    let forecast = r#"{"timezone":"Asia/Shanghai","current":{"time":"2026-11-30T15:00","temperature_2m":9.4,
        "relative_humidity_2m":31,"apparent_temperature":6.2,"precipitation":0.0,"weather_code":1,"wind_speed_10m":11.2},
        "daily":{"time":["2026-11-30"],"weather_code":[1],"temperature_2m_max":[11.3],"temperature_2m_min":[-1.2],
        "precipitation_probability_max":[0]}}"#;
    use honeycomb_tests::web::json;
    vec![("/v1/search", json(search)), ("/v1/forecast", json(forecast))]
}
