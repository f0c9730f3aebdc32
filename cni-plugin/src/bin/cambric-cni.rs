//! `cambric-cni`: the CNI plugin.

fn main() -> std::process::ExitCode {
    cambric_cni::start(cambric_cni::run)
}
