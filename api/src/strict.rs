//! Reads objects as the API server's own types are read: a list in the place of an object is refused.
//!
//! serde's derived types take the elements of a list as their fields in order, so that `selector: []` would be a selector that selects
//! everything. The API server never lets such a list through its own kinds, and nor do we through ours.

use std::fmt;

use serde::Deserializer;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Error as _, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value};

/// Why an object could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The path of the field, as in `spec.selector.names[1]`; `.` for the object itself.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for Unreadable {}

/// The object as a type of ours.
///
/// # Errors
/// The first field that does not fit, and why.
pub fn read<T: DeserializeOwned>(object: &Value) -> Result<T, Unreadable> {
    serde_path_to_error::deserialize(Strict(object)).map_err(|error| Unreadable {
        field: error.path().to_string(),
        message: error.into_inner().to_string(),
    })
}

#[derive(Clone, Copy)]
struct Strict<'de>(&'de Value);

impl<'de> IntoDeserializer<'de, Error> for Strict<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Strict<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => SeqDeserializer::new(items.iter().map(Strict)).deserialize_any(visitor),
            Value::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (name.as_str(), Strict(value)));
                MapDeserializer::new(fields).deserialize_any(visitor)
            }
            plain => plain.deserialize_any(visitor),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(_) => Err(Error::invalid_type(Unexpected::Seq, &visitor)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.0.deserialize_enum(name, variants, visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clone_set::CloneSet;
    use crate::image_pull_job::ImagePullJob;

    #[test]
    fn a_list_is_never_read_as_an_object() {
        for (spec, field) in [
            (json!([]), "spec"),
            (json!(["nginx"]), "spec"),
            (json!({"image": "a", "selector": []}), "spec.selector"),
            (json!({"image": "a", "podSelector": []}), "spec.podSelector"),
            (json!({"image": "a", "pullPolicy": []}), "spec.pullPolicy"),
            (
                json!({"image": "a", "completionPolicy": ["Always"]}),
                "spec.completionPolicy",
            ),
            (
                json!({"image": "a", "selector": {"names": ["a", {}]}}),
                "spec.selector.names[1]",
            ),
            (
                json!({"image": "a", "selector": {"matchLabels": []}}),
                "spec.selector.matchLabels",
            ),
        ] {
            let refused = read::<ImagePullJob>(&json!({"metadata": {"name": "a"}, "spec": spec}));
            assert_eq!(refused.expect_err("a list").field, field, "{spec}");
        }
    }

    #[test]
    fn what_serde_reads_of_good_objects_is_read() {
        let object = json!({"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {
            "replicas": 3, "selector": {"matchLabels": {"x": "y"}}, "template": {"spec": {"containers": []}},
            "updateStrategy": {"partition": "40%", "maxUnavailable": 2, "type": "InPlaceIfPossible", "paused": null}}});
        let ours = read::<CloneSet>(&object).expect("a good set");
        let serde: CloneSet = serde_json::from_value(object).expect("a good set");
        assert_eq!(json!(ours), json!(serde));
    }
}
