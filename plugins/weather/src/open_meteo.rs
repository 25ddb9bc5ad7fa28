//! The Open-Meteo API: <https://open-meteo.com/en/docs>.

use honeycomb_sdk::prelude::*;

use crate::words::describe;
use crate::{Day, Now, Weather};

const FORECAST_URL: &str = "https://api.open-meteo.com";
const GEOCODING_URL: &str = "https://geocoding-api.open-meteo.com";
const CURRENT: &str = "temperature_2m,relative_humidity_2m,apparent_temperature,precipitation,weather_code,wind_speed_10m";
const DAILY: &str = "weather_code,temperature_2m_max,temperature_2m_min,precipitation_probability_max";

/// Somewhere on earth.
pub(crate) struct Place {
    name: String,
    latitude: f64,
    longitude: f64,
}

impl Place {
    pub(crate) fn at(latitude: f64, longitude: f64) -> Result<Self> {
        if !(-90.0..=90.0).contains(&latitude) || !(-180.0..=180.0).contains(&longitude) {
            return Err(Error::invalid_arguments("`latitude` has to be from -90 to 90 and `longitude` from -180 to 180"));
        }
        Ok(Self { name: format!("{latitude}, {longitude}"), latitude, longitude })
    }
}

/// Finds a city by its name.
pub(crate) fn find(context: &Context, city: &str) -> Result<Place> {
    #[derive(Deserialize)]
    struct Search {
        #[serde(default)]
        results: Vec<Found>,
    }
    #[derive(Deserialize)]
    struct Found {
        name: String,
        latitude: f64,
        longitude: f64,
        admin1: Option<String>,
        country: Option<String>,
    }

    // The language of the answer; the name may be in any.
    let language = if city.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c)) { "zh" } else { "en" };
    let url = base_url(context, "geocoding_url", GEOCODING_URL)? + "/v1/search";
    let request =
        context.http().get(url).query("name", city).query("count", 1).query("language", language).query("format", "json");
    let search: Search = request.send()?.success()?.json()?;
    let Some(found) = search.results.into_iter().next() else {
        return Err(Error::not_found(format!("no city is named `{city}`; check the spelling, or give coordinates")));
    };
    let parts = [Some(found.name), found.admin1, found.country];
    let name = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    Ok(Place { name, latitude: found.latitude, longitude: found.longitude })
}

/// Reads the weather at a place.
pub(crate) fn forecast(context: &Context, place: Place, days: u8) -> Result<Weather> {
    #[derive(Deserialize)]
    struct Forecast {
        timezone: String,
        current: Current,
        daily: Daily,
    }
    #[derive(Deserialize)]
    struct Current {
        time: String,
        temperature_2m: Option<f64>,
        relative_humidity_2m: Option<f64>,
        apparent_temperature: Option<f64>,
        precipitation: Option<f64>,
        weather_code: Option<u16>,
        wind_speed_10m: Option<f64>,
    }
    #[derive(Deserialize)]
    struct Daily {
        time: Vec<String>,
        weather_code: Vec<Option<u16>>,
        temperature_2m_max: Vec<Option<f64>>,
        temperature_2m_min: Vec<Option<f64>>,
        precipitation_probability_max: Vec<Option<f64>>,
    }

    // The lists go as they are: a comma needs no encoding in a query.
    let url = format!(
        "{}/v1/forecast?latitude={}&longitude={}&current={CURRENT}&daily={DAILY}",
        base_url(context, "base_url", FORECAST_URL)?,
        place.latitude,
        place.longitude
    );
    let request = context.http().get(url).query("timezone", "auto").query("forecast_days", days);
    let forecast: Forecast = request.send()?.success()?.json()?;
    let (current, daily) = (forecast.current, forecast.daily);
    let days = daily.time.into_iter().enumerate().map(|(index, date)| Day {
        date,
        weather: describe(daily.weather_code.get(index).copied().flatten()),
        max_celsius: daily.temperature_2m_max.get(index).copied().flatten(),
        min_celsius: daily.temperature_2m_min.get(index).copied().flatten(),
        rain_probability_percent: daily.precipitation_probability_max.get(index).copied().flatten(),
    });
    Ok(Weather {
        place: place.name,
        latitude: place.latitude,
        longitude: place.longitude,
        timezone: forecast.timezone,
        now: Now {
            time: current.time,
            weather: describe(current.weather_code),
            temperature_celsius: current.temperature_2m,
            feels_like_celsius: current.apparent_temperature,
            humidity_percent: current.relative_humidity_2m,
            precipitation_mm: current.precipitation,
            wind_kmh: current.wind_speed_10m,
        },
        days: days.collect(),
    })
}

fn base_url(context: &Context, key: &str, default: &str) -> Result<String> {
    let url = context.config().get(key)?.unwrap_or_else(|| default.to_owned());
    Ok(url.trim_end_matches('/').to_owned())
}
