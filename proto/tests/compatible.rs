//! What a released program understands stays as it is: managers and agents of neighbouring versions speak with each other during an upgrade, in both orders.
//!
//! `released.bin` has the descriptors of the last release. It changes with a release only: `cp proto/src/gen/descriptors.bin proto/tests/released.bin`.

use std::collections::BTreeMap;

use kruise_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorSet};

const RELEASED: &[u8] = include_bytes!("released.bin");

/// Everything that goes over the wire, by its full name, with what must not change about it.
fn contract(descriptors: &[u8]) -> BTreeMap<String, String> {
    let set = FileDescriptorSet::decode(descriptors).expect("descriptors");
    let mut contract = BTreeMap::new();
    for file in set
        .file
        .iter()
        .filter(|file| file.package().starts_with("kruise."))
    {
        for message in &file.message_type {
            of_message(file.package(), message, &mut contract);
        }
        for kind in &file.enum_type {
            of_enum(file.package(), kind, &mut contract);
        }
        for service in &file.service {
            for method in &service.method {
                let name = format!("{}.{}/{}", file.package(), service.name(), method.name());
                let how = format!(
                    "{} (streamed: {}) to {} (streamed: {})",
                    method.input_type(),
                    method.client_streaming(),
                    method.output_type(),
                    method.server_streaming()
                );
                contract.insert(name, how);
            }
        }
    }
    contract
}

fn of_message(scope: &str, message: &DescriptorProto, contract: &mut BTreeMap<String, String>) {
    let scope = format!("{scope}.{}", message.name());
    for field in &message.field {
        let oneof = field
            .oneof_index
            .and_then(|index| message.oneof_decl.get(usize::try_from(index).ok()?))
            .map(|oneof| oneof.name().to_owned());
        let what = format!(
            "{} {:?} {:?} {} in {oneof:?}",
            field.name(),
            field.r#type(),
            field.label(),
            field.type_name()
        );
        contract.insert(format!("{scope} = {}", field.number()), what);
    }
    for inner in &message.nested_type {
        of_message(&scope, inner, contract);
    }
    for inner in &message.enum_type {
        of_enum(&scope, inner, contract);
    }
}

fn of_enum(scope: &str, kind: &EnumDescriptorProto, contract: &mut BTreeMap<String, String>) {
    for value in &kind.value {
        contract.insert(
            format!("{scope}.{} = {}", kind.name(), value.number()),
            value.name().to_owned(),
        );
    }
}

/// What of the old contract the new one breaks.
fn broken(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<String> {
    old.iter()
        .filter_map(|(name, what)| match new.get(name) {
            Some(now) if now == what => None,
            Some(now) => Some(format!("{name} was {what} and is {now}")),
            None => Some(format!("{name} ({what}) is gone")),
        })
        .collect()
}

#[test]
fn nothing_that_is_released_changes() {
    let (old, new) = (contract(RELEASED), contract(FILE_DESCRIPTOR_SET));
    assert!(old.len() > 100, "{}", old.len());
    assert_eq!(broken(&old, &new), Vec::<String>::new());
}

#[test]
fn a_field_that_goes_or_changes_is_noticed() {
    let old = contract(RELEASED);
    let mut new = old.clone();
    let (name, what) = old
        .iter()
        .find(|(name, _)| name.contains("Hello = 6"))
        .expect("a field");
    new.insert(name.clone(), what.replace("Uint64", "String"));
    assert_eq!(broken(&old, &new).len(), 1);
    new.remove(name);
    assert_eq!(broken(&old, &new).len(), 1);
    new.insert("kruise.new.v1.Message = 1".to_owned(), "more".to_owned());
    assert_eq!(broken(&old, &new).len(), 1);
}
