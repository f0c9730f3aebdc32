//! `cambric-ipam`: address management for other plugins.

fn main() -> std::process::ExitCode {
    cambric_cni::start(cambric_cni::run_ipam)
}
