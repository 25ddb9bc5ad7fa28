//! A weather service on loopback, in the shape of Open-Meteo's public API: <https://open-meteo.com/en/docs>.
//!
//! It answers every place with the same fair day, so that the demo needs no internet.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// The running service. It ends with the process.
pub(crate) struct WeatherServer {
    /// Where it listens.
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl WeatherServer {
    /// Starts on `preferred`, or on another port if that one is taken.
    pub(crate) fn start(preferred: u16) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", preferred)).or_else(|_| TcpListener::bind(("127.0.0.1", 0)))?;
        let port = listener.local_addr()?.port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&requests);
        let open = Arc::new(AtomicU32::new(0));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // More than the demo ever needs; a stranger on this machine cannot pile up threads.
                if open.fetch_add(1, Ordering::Relaxed) >= 16 {
                    open.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (log, open) = (Arc::clone(&log), Arc::clone(&open));
                thread::spawn(move || {
                    let _ = answer(&stream, &log);
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Ok(Self { port, requests })
    }

    /// The request lines so far.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn answer(stream: &TcpStream, log: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.take(16 * 1024));
    let mut request_line = String::new();
    lines.read_line(&mut request_line)?;
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
    }
    let path = request_line.split_whitespace().nth(1).unwrap_or_default().to_owned();
    log.lock().unwrap_or_else(PoisonError::into_inner).push(request_line.trim_end().to_owned());
    let (status, body) = if path.starts_with("/v1/search?") {
        ("200 OK", SEARCH)
    } else if path.starts_with("/v1/forecast?") {
        ("200 OK", FORECAST)
    } else {
        ("404 Not Found", r#"{"error":true,"reason":"not found"}"#)
    };
    let mut writer = stream;
    write!(
        writer,
        "HTTP/1.1 {status}\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    writer.flush()
}

const SEARCH: &str = r#"{"results":[{"id":1816670,"name":"北京","latitude":39.9075,"longitude":116.39723,"elevation":49.0,
"feature_code":"PPLC","country_code":"CN","timezone":"Asia/Shanghai","population":18960744,"country":"中国","admin1":"北京市"}],
"generationtime_ms":0.7}"#;

const FORECAST: &str = r#"{"latitude":39.875,"longitude":116.375,"generationtime_ms":0.1,"utc_offset_seconds":28800,
"timezone":"Asia/Shanghai","timezone_abbreviation":"GMT+8","elevation":47.0,
"current_units":{"time":"iso8601","interval":"seconds","temperature_2m":"°C","relative_humidity_2m":"%",
"apparent_temperature":"°C","precipitation":"mm","weather_code":"wmo code","wind_speed_10m":"km/h"},
"current":{"time":"2026-11-30T15:00","interval":900,"temperature_2m":9.4,"relative_humidity_2m":31,"apparent_temperature":6.2,
"precipitation":0.0,"weather_code":1,"wind_speed_10m":11.2},
"daily_units":{"time":"iso8601","weather_code":"wmo code","temperature_2m_max":"°C","temperature_2m_min":"°C",
"precipitation_probability_max":"%"},
"daily":{"time":["2026-11-30","2026-12-01","2026-12-02"],"weather_code":[1,2,3],"temperature_2m_max":[11.3,10.1,8.0],
"temperature_2m_min":[-1.2,-2.0,-3.4],"precipitation_probability_max":[0,3,10]}}"#;
