//! What `make proto` has written is of the published `.proto`.

use crate::DESCRIPTORS;
use prost::Message as _;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet};

const GENERATED: &str = include_str!("generated.rs");
const FILES: [(&str, &str); 2] = [
    ("isochrone/v1/isochrone.proto", include_str!("../../../proto/isochrone/v1/isochrone.proto")),
    ("grpc/health/v1/health.proto", include_str!("../../../proto/grpc/health/v1/health.proto")),
];

/// What a file defines, as it writes that: sorted.
fn written(text: &str) -> Vec<String> {
    let of = |line: &str| {
        let code = line.split("//").next().unwrap_or_default().trim();
        let words: Vec<&str> = code.split_whitespace().collect();
        match words.as_slice() {
            ["rpc", ..] => Some(code.to_owned()),
            [what @ ("service" | "message" | "enum" | "oneof"), name, ..] => Some(format!("{what} {name}")),
            [.., name, "=", number] if number.ends_with(';') && words[0] != "syntax" => {
                Some(format!("{name} = {number}"))
            }
            _ => None,
        }
    };
    let mut found: Vec<String> = text.lines().filter_map(of).collect();
    found.sort();
    found
}

/// The same of its descriptor.
fn described(file: &FileDescriptorProto) -> Vec<String> {
    let mut found = Vec::new();
    let local = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    for service in &file.service {
        found.push(format!("service {}", service.name()));
        for method in &service.method {
            let stream = if method.server_streaming() { "stream " } else { "" };
            let (asked, answered) = (local(method.input_type()), local(method.output_type()));
            found.push(format!("rpc {}({asked}) returns ({stream}{answered});", method.name()));
        }
    }
    file.message_type.iter().for_each(|message| describe(message, &mut found));
    file.enum_type.iter().for_each(|choice| enumerate(choice, &mut found));
    found.sort();
    found
}

fn describe(message: &DescriptorProto, found: &mut Vec<String>) {
    found.push(format!("message {}", message.name()));
    found.extend(message.field.iter().map(|field| format!("{} = {};", field.name(), field.number())));
    // A field that is `optional` has one of its own.
    let oneofs = message.oneof_decl.iter().filter(|oneof| !oneof.name().starts_with('_'));
    found.extend(oneofs.map(|oneof| format!("oneof {}", oneof.name())));
    message.nested_type.iter().for_each(|message| describe(message, found));
    message.enum_type.iter().for_each(|choice| enumerate(choice, found));
}

fn enumerate(choice: &EnumDescriptorProto, found: &mut Vec<String>) {
    found.push(format!("enum {}", choice.name()));
    found.extend(choice.value.iter().map(|value| format!("{} = {};", value.name(), value.number())));
}

#[test]
fn what_is_generated_is_of_the_published_files() {
    let set = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
    assert_eq!(set.file.len(), FILES.len());
    for (name, text) in FILES {
        let file = set.file.iter().find(|file| file.name() == name).unwrap_or_else(|| panic!("no {name}"));
        assert_eq!(described(file), written(text), "{name}: run `make proto`");
        let located = file.source_code_info.iter().flat_map(|info| &info.location);
        assert!(located.map(|at| at.leading_comments()).any(|text| !text.is_empty()), "{name}");
    }
    let own = set.file.iter().find(|file| file.name() == FILES[0].0).unwrap();
    let paths = own.service.iter().flat_map(|service| {
        let of = format!("/{}.{}/", own.package(), service.name());
        service.method.iter().map(move |method| format!("{of}{}", method.name()))
    });
    let structs = own.message_type.iter().map(|message| format!("pub struct {} {{", message.name()));
    for expected in paths.chain(structs) {
        assert!(GENERATED.contains(&expected), "{expected:?} is not in generated.rs: run `make proto`");
    }
}
