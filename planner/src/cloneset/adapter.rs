//! INTERIM: what others build.

use serde_json::Value;

use super::snapshot::Gates;
use super::way::Way;

pub(super) fn data(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(map) = template.as_object_mut() {
        map.insert("$patch".to_owned(), "replace".into());
    }
    serde_json::json!({"spec": {"template": template}})
}

pub(super) fn hash(data: &Value, collision: i32) -> String {
    let text = format!("{data}{collision}");
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        hash.wrapping_mul(0x0100_0193) ^ u32::from(byte)
    });
    hash.to_string()
        .bytes()
        .map(|digit| char::from(b"456789bcdf"[usize::from(digit - b'0')]))
        .collect()
}

pub(super) fn name(set: &str, hash: &str) -> String {
    format!("{set}-{hash}")
}

pub(super) fn claim_template_hash(_claims: Option<&Value>) -> String {
    String::new()
}

pub(super) fn way(old: &Value, new: &Value, _gates: &Gates) -> Way {
    let (mut a, mut b) = (old.clone(), new.clone());
    let images = |data: &mut Value| -> Vec<String> {
        let containers = data
            .pointer_mut("/spec/template/spec/containers")
            .and_then(Value::as_array_mut);
        containers
            .into_iter()
            .flatten()
            .map(|container| container["image"].take().as_str().unwrap_or_default().to_owned())
            .collect()
    };
    let (old_images, new_images) = (images(&mut a), images(&mut b));
    if a.pointer("/spec/template/spec") != b.pointer("/spec/template/spec")
        || old_images.len() != new_images.len()
    {
        return Way::Impossible {
            why: "/spec".to_owned(),
        };
    }
    let images: Vec<String> = old_images
        .into_iter()
        .zip(new_images)
        .filter(|(old, new)| old != new)
        .map(|(_, new)| new)
        .collect();
    Way::InPlace {
        metadata_only: images.is_empty(),
        images,
    }
}
