//! A stand-in for `protoc` with only the options that prost's and tonic's build scripts use:
//! compile `.proto` files and write their descriptors. Code generation is prost's own.

use std::path::PathBuf;
use std::process::ExitCode;

use prost::Message;

/// The arguments of the command line.
#[derive(Debug, Default, PartialEq)]
struct Arguments {
    include_imports: bool,
    include_source_info: bool,
    out: Option<PathBuf>,
    includes: Vec<PathBuf>,
    files: Vec<PathBuf>,
    version: bool,
}

impl Arguments {
    fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut parsed = Self::default();
        let mut rest = arguments.into_iter();
        while let Some(argument) = rest.next() {
            let mut value = |inline: &str| match inline {
                "" => rest.next().ok_or(format!("{argument} needs a value")),
                given => Ok(given.to_owned()),
            };
            if argument == "--include_imports" {
                parsed.include_imports = true;
            } else if argument == "--include_source_info" {
                parsed.include_source_info = true;
            } else if argument == "--version" {
                parsed.version = true;
            } else if argument == "--experimental_allow_proto3_optional" {
                // Always allowed here.
            } else if let Some(path) = argument.strip_prefix("--descriptor_set_out=") {
                parsed.out = Some(path.into());
            } else if argument == "--descriptor_set_out" {
                parsed.out = Some(value("")?.into());
            } else if let Some(path) = argument.strip_prefix("--proto_path=") {
                parsed.includes.push(path.into());
            } else if argument == "--proto_path" {
                parsed.includes.push(value("")?.into());
            } else if let Some(path) = argument.strip_prefix("-o") {
                parsed.out = Some(value(path)?.into());
            } else if let Some(path) = argument.strip_prefix("-I") {
                parsed.includes.push(value(path)?.into());
            } else if argument.starts_with('-') {
                return Err(format!("the stand-in for protoc does not support {argument}"));
            } else {
                parsed.files.push(argument.into());
            }
        }
        Ok(parsed)
    }
}

fn run(mut arguments: Arguments) -> Result<(), String> {
    if arguments.version {
        // Build scripts compare this number; it is the language level that protox implements.
        println!("libprotoc 29.0");
        return Ok(());
    }
    if arguments.files.is_empty() {
        return Err("no .proto file given".into());
    }
    if arguments.includes.is_empty() {
        arguments.includes.push(".".into());
    }
    let out = arguments.out.ok_or("no output given: -o FILE")?;
    let mut compiler =
        protox::Compiler::new(arguments.includes).map_err(|error| error.to_string())?;
    compiler
        .include_imports(arguments.include_imports)
        .include_source_info(arguments.include_source_info)
        .open_files(arguments.files)
        .map_err(|error| format!("{error:?}"))?;
    let octets = compiler.file_descriptor_set().encode_to_vec();
    std::fs::write(&out, octets).map_err(|error| format!("{}: {error}", out.display()))
}

fn main() -> ExitCode {
    match Arguments::parse(std::env::args().skip(1)).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("protoc: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, String> {
        Arguments::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn the_forms_build_scripts_use_are_understood() {
        let spaced =
            parse("--include_imports --include_source_info -o out -I proto a.proto").unwrap();
        assert!(spaced.include_imports && spaced.include_source_info);
        assert_eq!(spaced.out, Some("out".into()));
        assert_eq!(spaced.includes, [PathBuf::from("proto")]);
        let joined = parse(
            "--include_imports --include_source_info --descriptor_set_out=out --proto_path=proto a.proto",
        );
        assert_eq!(joined, Ok(spaced));
    }

    #[test]
    fn unknown_argument_is_rejected() {
        assert!(
            parse("--cpp_out=x a.proto")
                .unwrap_err()
                .contains("--cpp_out")
        );
        assert!(parse("a.proto -o").unwrap_err().contains("-o"));
    }
}
