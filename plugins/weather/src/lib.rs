//! Weather forecasts from Open-Meteo, or from a server that answers like it.

mod open_meteo;
mod words;

use honeycomb_sdk::prelude::*;

/// Gets the current weather and the forecast for a place: temperature, what it feels like, humidity, wind, rain. Name the city, in any
/// language, or give its coordinates. All units are metric and all times local to the place.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GetWeather {
    /// The city, such as `北京` or `Paris`. Leave it out when there are coordinates.
    #[serde(default)]
    #[schemars(length(min = 1, max = 100))]
    city: Option<String>,
    /// Degrees north.
    #[serde(default)]
    #[schemars(range(min = -90, max = 90))]
    latitude: Option<f64>,
    /// Degrees east.
    #[serde(default)]
    #[schemars(range(min = -180, max = 180))]
    longitude: Option<f64>,
    /// For how many days, today included. The default is 3.
    #[serde(default)]
    #[schemars(range(min = 1, max = 16))]
    days: Option<u8>,
}

/// The weather at a place.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Weather {
    /// The place that was found, or the coordinates.
    place: String,
    latitude: f64,
    longitude: f64,
    /// The time zone of all times.
    timezone: String,
    now: Now,
    days: Vec<Day>,
}

/// The weather now. A value that the service does not know is null.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Now {
    time: String,
    weather: &'static str,
    temperature_celsius: Option<f64>,
    feels_like_celsius: Option<f64>,
    humidity_percent: Option<f64>,
    precipitation_mm: Option<f64>,
    wind_kmh: Option<f64>,
}

/// The forecast for one day. A value that the service does not know is null.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
pub(crate) struct Day {
    date: String,
    weather: &'static str,
    max_celsius: Option<f64>,
    min_celsius: Option<f64>,
    rain_probability_percent: Option<f64>,
}

impl Tool for GetWeather {
    const NAME: &'static str = "get_weather";
    const TITLE: Option<&'static str> = Some("Weather");
    const HINTS: Hints = Hints::LOOKUP;
    type Output = Weather;

    fn call(self, context: &Context) -> Result<Weather> {
        let days = self.days.unwrap_or(3);
        if !(1..=16).contains(&days) {
            return Err(Error::invalid_arguments(format!("`days` is {days}: it has to be from 1 to 16")));
        }
        let place = match (self.city.as_deref().map(str::trim), self.latitude, self.longitude) {
            (Some(""), None, None) => return Err(Error::invalid_arguments("`city` is empty: name a city")),
            (Some(city), None, None) => open_meteo::find(context, city)?,
            (None, Some(latitude), Some(longitude)) => open_meteo::Place::at(latitude, longitude)?,
            _ => return Err(Error::invalid_arguments("give `city`, or `latitude` and `longitude`, and not both")),
        };
        open_meteo::forecast(context, place, days)
    }
}

honeycomb_sdk::export!(GetWeather);
honeycomb_sdk::requests!("../requests.toml");

#[cfg(test)]
mod tests {
    use super::*;
    use honeycomb_sdk::http::{HttpError, Request, Response};

    const BEIJING: &str =
        r#"{"results":[{"name":"北京","latitude":39.9075,"longitude":116.39723,"country":"中国","admin1":"北京市"}]}"#;
    const FORECAST: &str = r#"{
        "latitude":39.875,"longitude":116.375,"timezone":"Asia/Shanghai",
        "current":{"time":"2026-05-01T14:00","temperature_2m":24.1,"relative_humidity_2m":35,"apparent_temperature":22.8,
            "precipitation":0.0,"weather_code":1,"wind_speed_10m":11.2},
        "daily":{"time":["2026-05-01","2026-05-02"],"weather_code":[3,61],"temperature_2m_max":[26.0,19.5],
            "temperature_2m_min":[13.2,12.0],"precipitation_probability_max":[5,null]}
    }"#;

    fn city(city: &str) -> GetWeather {
        GetWeather { city: Some(city.to_owned()), latitude: None, longitude: None, days: Some(2) }
    }

    fn service(request: &Request) -> Result<Response, HttpError> {
        let body = if request.url.contains("/v1/search") { BEIJING } else { FORECAST };
        Ok(Response::new(200).with_body(body))
    }

    #[test]
    fn finds_a_city_and_reads_its_forecast() {
        let context = Context::test().with_http(|request| {
            let expected = if request.url.contains("geocoding") {
                "https://geocoding-api.open-meteo.com/v1/search?name=%E5%8C%97%E4%BA%AC&count=1&language=zh&format=json"
            } else {
                "https://api.open-meteo.com/v1/forecast?latitude=39.9075&longitude=116.39723&current=temperature_2m,relative_humidity_2m,\
                 apparent_temperature,precipitation,weather_code,wind_speed_10m&daily=weather_code,temperature_2m_max,\
                 temperature_2m_min,precipitation_probability_max&timezone=auto&forecast_days=2"
            };
            assert_eq!(request.url, expected);
            service(request)
        });
        let weather = city("北京").call(&context).expect("the double answers");
        assert_eq!(weather.place, "北京, 北京市, 中国");
        assert_eq!(weather.now.weather, "mainly clear");
        assert_eq!(weather.now.temperature_celsius, Some(24.1));
        assert_eq!(weather.days.len(), 2);
        assert_eq!(weather.days[1].weather, "light rain");
        assert_eq!(weather.days[1].rain_probability_percent, None);
    }

    #[test]
    fn asks_the_configured_servers() {
        let context = Context::test()
            .with_config([("base_url", "http://127.0.0.1:8080/"), ("geocoding_url", "http://127.0.0.1:8081")])
            .with_http(|request| {
                let search = request.url.starts_with("http://127.0.0.1:8081/v1/search?name=Paris");
                assert!(search || request.url.starts_with("http://127.0.0.1:8080/v1/forecast?"), "{}", request.url);
                service(request)
            });
        city("Paris").call(&context).expect("the double answers");
    }

    #[test]
    fn coordinates_need_no_search() {
        let context = Context::test().with_http(|request| {
            assert!(request.url.contains("latitude=-33.9&longitude=18.4&"), "{}", request.url);
            service(request)
        });
        let tool = GetWeather { city: None, latitude: Some(-33.9), longitude: Some(18.4), days: None };
        assert_eq!(tool.call(&context).expect("the double answers").place, "-33.9, 18.4");
    }

    #[test]
    fn arguments_that_make_no_sense_are_refused() {
        let (none, some) = (None::<f64>, Some(1.0));
        for (name, latitude, longitude, days) in [
            (None, none, none, None),
            (Some("北京"), some, some, None),
            (Some("北京"), some, none, None),
            (None, some, none, None),
            (None, Some(91.0), some, None),
            (None, some, Some(-180.5), None),
            (None, Some(f64::NAN), some, None),
            (Some(" "), none, none, None),
            (Some("北京"), none, none, Some(0)),
            (Some("北京"), none, none, Some(17)),
        ] {
            let tool = GetWeather { city: name.map(str::to_owned), latitude, longitude, days };
            let error = tool.call(&Context::test()).expect_err("refused before anything is sent");
            assert_eq!(error.kind(), ErrorKind::InvalidArguments, "{name:?} {latitude:?} {longitude:?} {days:?}: {error}");
        }
    }

    #[test]
    fn failures_of_the_service_are_told_apart() {
        for (status, body, expected) in [
            (200, r#"{"generationtime_ms":0.5}"#, ErrorKind::NotFound),
            (200, r#"{"results":[]}"#, ErrorKind::NotFound),
            (200, "<html>", ErrorKind::Failed),
            (400, r#"{"error":true,"reason":"bad"}"#, ErrorKind::Failed),
            (429, "", ErrorKind::RateLimited),
            (502, "", ErrorKind::Unavailable),
        ] {
            let context = Context::test().with_http(move |_| Ok(Response::new(status).with_body(body)));
            assert_eq!(city("北京").call(&context).expect_err(body).kind(), expected, "{status} {body}");
        }
        assert_eq!(city("北京").call(&Context::test()).expect_err("not granted").kind(), ErrorKind::Denied);
    }
}
