//! That no two addresses to listen on are in each other's way. What enters is settings; what leaves is a problem for each that
//! the system would refuse.

use std::net::SocketAddr;

use super::{Rules, Settings};

/// All addresses of `server.listen` and `admin.listen` can be listened on at once.
pub(super) fn differ(rules: &mut Rules<'_>, settings: &Settings) {
    let (listen, admin) = (&settings.server.listen, settings.admin.listen);
    for (i, address) in listen.iter().enumerate() {
        rules.check(!is_one_port(*address, admin), &["admin.listen", "server.listen"], || {
            format!("admin.listen ({admin}) and server.listen ({address}) are the same port; write another for one of them")
        });
        if let Some(twin) = listen[..i].iter().find(|other| is_one_port(*address, **other)) {
            rules.check(false, &[&format!("server.listen[{i}]")], || format!("{address} is the same port as {twin} before it"));
        }
    }
}

/// Whether only one can listen on both: port 0 is another one each time, and all addresses of a family are among those of its
/// wildcard. Whether IPv4 is among those of `[::]` is for the system to say.
fn is_one_port(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip(), other.ip());
    let meet = a == b || a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified());
    one.port() == other.port() && one.port() != 0 && meet
}
