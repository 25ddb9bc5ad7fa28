//! The tools of `../wit/typed.wit` in Rust, with `wit-bindgen` alone: no SDK, nothing that knows of Honeycomb.

use std::collections::BTreeMap;
use std::fs;

use exports::honeycomb::typed::data::Guest as Data;
use exports::honeycomb::typed::outside::{Answer, Guest as Outside};
use exports::honeycomb::typed::shapes::{Direction, DivisionError, Guest as Shapes, Permissions, Point, Shape};
use wasi::http::outgoing_handler;
use wasi::http::types::{Fields, IncomingBody, OutgoingRequest, Scheme};
use wasi::io::streams::StreamError;

wit_bindgen::generate!({ path: "../wit", world: "tools", generate_all });
export!(Tools);

struct Tools;

impl Guest for Tools {
    fn greet(name: String) -> String {
        format!("Hello, {name}!")
    }

    fn a23456789_b23456789_c23456789_d23456789_e23456789_f23456789_g23456789_h23456789_i23456789_j23456789_k23456789_l23456789_m23456789()
    -> bool {
        true
    }
}

impl Shapes for Tools {
    fn move_point(point: Point, direction: Direction, distance: u8) -> Point {
        let distance = i32::from(distance);
        let (dx, dy) = match direction {
            Direction::North => (0, distance),
            Direction::East => (distance, 0),
            Direction::South => (0, -distance),
            Direction::West => (-distance, 0),
        };
        Point { x: point.x.saturating_add(dx), y: point.y.saturating_add(dy), label: point.label }
    }

    fn area(shape: Shape) -> Result<f64, String> {
        match shape {
            Shape::Circle(radius) => Ok(std::f64::consts::PI * radius * radius),
            Shape::Empty => Ok(0.0),
            Shape::Polygon(corners) if corners.len() < 3 => {
                Err(format!("a polygon has at least 3 corners, not {}", corners.len()))
            }
            Shape::Polygon(corners) => {
                let next = corners.iter().cycle().skip(1);
                let pairs = corners.iter().zip(next);
                let twice: f64 = pairs.map(|(a, b)| f64::from(a.x) * f64::from(b.y) - f64::from(b.x) * f64::from(a.y)).sum();
                Ok(twice.abs() / 2.0)
            }
        }
    }

    fn bounds(points: Vec<Point>) -> Option<(Point, Point)> {
        let x = |point: &Point| point.x;
        let y = |point: &Point| point.y;
        let lowest = Point { x: points.iter().map(x).min()?, y: points.iter().map(y).min()?, label: None };
        let highest = Point { x: points.iter().map(x).max()?, y: points.iter().map(y).max()?, label: None };
        Some((lowest, highest))
    }

    fn invert(permissions: Permissions) -> Permissions {
        let every = [Permissions::READ, Permissions::WRITE, Permissions::EXECUTE];
        every.into_iter().filter(|&one| permissions & one != one).fold(Permissions::empty(), |all, one| all | one)
    }

    fn divide(dividend: i64, divisor: i64) -> Result<i64, DivisionError> {
        if divisor == 0 {
            return Err(DivisionError::ByZero);
        }
        dividend.checked_div(divisor).ok_or(DivisionError::Overflow(dividend))
    }
}

impl Data for Tools {
    fn reverse(mut data: Vec<u8>) -> Vec<u8> {
        data.reverse();
        data
    }

    fn extremes() -> (u64, i64) {
        (u64::MAX, i64::MIN)
    }

    fn count(text: String) -> Vec<(char, u32)> {
        let mut order = Vec::new();
        let mut counts: BTreeMap<char, u32> = BTreeMap::new();
        for char in text.chars() {
            let count = counts.entry(char).or_default();
            if *count == 0 {
                order.push(char);
            }
            *count += 1;
        }
        order.into_iter().map(|char| (char, counts.get(&char).copied().unwrap_or_default())).collect()
    }

    fn not_a_number() -> f64 {
        f64::NAN
    }

    fn nested(value: Option<Option<String>>) -> Option<Option<String>> {
        value
    }
}

impl Outside for Tools {
    fn fetch(url: String) -> Result<Answer, String> {
        let (scheme, rest) = match url.split_once("://") {
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            _ => return Err(format!("`{url}` is no http or https address")),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let request = OutgoingRequest::new(Fields::new());
        let set = request.set_scheme(Some(&scheme)).and(request.set_authority(Some(authority)));
        set.and(request.set_path_with_query(Some(if path.is_empty() { "/" } else { path })))
            .map_err(|()| format!("`{url}` is no address"))?;
        let future = outgoing_handler::handle(request, None).map_err(|error| format!("the request was refused: {error:?}"))?;
        future.subscribe().block();
        let response = match future.get() {
            Some(Ok(Ok(response))) => response,
            Some(Ok(Err(error))) => return Err(format!("the request failed: {error:?}")),
            _ => return Err("the request has no outcome".to_owned()),
        };
        let body = response.consume().map_err(|()| "the answer has no body".to_owned())?;
        let body = String::from_utf8(read(&body)?).map_err(|error| error.to_string())?;
        Ok(Answer { status: response.status(), body })
    }

    fn read_file(path: String) -> Result<String, String> {
        fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))
    }

    fn write_file(path: String, text: String) -> Result<(), String> {
        fs::write(&path, text).map_err(|error| format!("{path}: {error}"))
    }
}

/// All bytes of a body.
fn read(body: &IncomingBody) -> Result<Vec<u8>, String> {
    let stream = body.stream().map_err(|()| "the body was read already".to_owned())?;
    let mut bytes = Vec::new();
    loop {
        match stream.blocking_read(64 * 1024) {
            Ok(chunk) => bytes.extend_from_slice(&chunk),
            Err(StreamError::Closed) => return Ok(bytes),
            Err(StreamError::LastOperationFailed(error)) => return Err(error.to_debug_string()),
        }
    }
}
