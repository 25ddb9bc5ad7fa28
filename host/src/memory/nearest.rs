//! Vectors: how they are kept, and which are nearest to one.

use rusqlite::Connection;

use super::search::{DEPTH, Places};

/// A vector as bytes: 32-bit floats, little-endian, of length one, so that a product is a cosine. None if it has no direction.
pub(super) fn encode(vector: &[f32]) -> Option<Vec<u8>> {
    let length = vector.iter().map(|x| f64::from(*x) * f64::from(*x)).sum::<f64>().sqrt();
    if !length.is_finite() || length == 0.0 {
        return None;
    }
    Some(vector.iter().flat_map(|x| ((f64::from(*x) / length) as f32).to_le_bytes()).collect())
}

/// The entries whose vectors point most nearly where `query` does, nearest first. All vectors of the places are looked at: some ten
/// thousand take milliseconds, and an index of neighbours would be another dependency.
pub(super) fn nearest(connection: &Connection, places: &Places, model: &str, query: &[u8]) -> rusqlite::Result<Vec<i64>> {
    let sql = format!(
        "SELECT vector.number, vector.vector FROM vector JOIN entry USING (number) WHERE vector.model = ?1 AND {}",
        places.sql(2)
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(std::iter::once(model).chain(places.words())))?;
    let mut found: Vec<(f32, i64)> = Vec::new();
    while let Some(row) = rows.next()? {
        let bytes = row.get_ref(1)?.as_blob()?;
        // Another model of the same name may have another length.
        if bytes.len() == query.len() {
            let cosine = product(bytes, query);
            if cosine > 0.0 {
                found.push((cosine, row.get(0)?));
            }
        }
    }
    found.sort_unstable_by(|a, b| b.0.total_cmp(&a.0).then(b.1.cmp(&a.1)));
    found.truncate(DEPTH);
    Ok(found.into_iter().map(|(_, number)| number).collect())
}

fn product(a: &[u8], b: &[u8]) -> f32 {
    let floats = |bytes: &[u8]| bytes.first_chunk::<4>().map_or(0.0, |chunk| f32::from_le_bytes(*chunk));
    a.chunks_exact(4).zip(b.chunks_exact(4)).map(|(x, y)| floats(x) * floats(y)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_has_length_one_or_no_direction() {
        let a = encode(&[3.0, 4.0]).expect("a direction");
        assert!((product(&a, &a) - 1.0).abs() < 1e-6);
        assert!((product(&a, &encode(&[30.0, 40.0]).expect("a direction")) - 1.0).abs() < 1e-6);
        for none in [&[][..], &[0.0, 0.0], &[f32::NAN], &[f32::INFINITY]] {
            assert_eq!(encode(none), None);
        }
    }
}
