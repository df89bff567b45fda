#![allow(clippy::unwrap_used)]

use super::*;
use colloquy_ports::clock::SystemClock;

fn connections(max_open: usize, reserve: usize) -> ConnectionRegistry {
    let limits = ConnectionLimits {
        max_open,
        reserve,
        ..ConnectionLimits::default()
    };
    ConnectionRegistry::new(limits, Arc::new(SystemClock))
}

fn from(connections: &ConnectionRegistry, last: u8) -> Arc<TcpConnection> {
    connections
        .admit_connection(Some(IpAddr::from([192, 0, 2, last])))
        .unwrap()
}

fn is_cut(connection: &TcpConnection) -> bool {
    connection.is_cut.load(Relaxed)
}

#[test]
fn address_with_most_idle_connections_makes_room_when_full() {
    let connections = connections(4, 2);
    let alone = from(&connections, 1);
    let many = [from(&connections, 2), from(&connections, 2), from(&connections, 2)];
    let busy = many[0].begin_request();
    let new = from(&connections, 3);
    assert!(!new.is_in_reserve());
    assert_eq!(
        [&alone, &many[0], &many[1], &many[2]].map(|one| is_cut(one)),
        [false, false, true, false]
    );
    drop(busy);
    assert_eq!(
        (
            connections.open_count(),
            connections.cut_count(),
            connections.refused_count()
        ),
        (4, 1, 0)
    );
}

#[test]
fn connection_reserve_is_used_when_none_is_idle_and_then_refused() {
    let connections = connections(2, 2);
    let mut held = Vec::new();
    for (address, reserved) in [(1, false), (1, false), (1, true), (2, true)] {
        let connection = from(&connections, address);
        assert_eq!(connection.is_in_reserve(), reserved);
        held.push((connection.begin_request(), connection));
    }
    assert!(connections.admit_connection(None).is_err());
    assert_eq!((connections.refused_count(), connections.cut_count()), (1, 0));
    let (answering, connection) = held.pop().unwrap();
    drop(answering);
    connections.remove_connection(&connection);
    assert!(from(&connections, 1).is_in_reserve());
}

#[test]
fn newcomers_share_the_reserve_and_one_address_does_not_fill_it() {
    let connections = connections(1, 8);
    let busy = from(&connections, 1);
    let _answering = busy.begin_request();
    let probe = from(&connections, 2);
    let flood: Vec<_> = (0..20).map(|_| connections.admit_connection(busy.address)).collect();
    assert_eq!(flood.iter().flatten().count(), MAX_RESERVE_PER_ADDRESS);
    let another = from(&connections, 3);
    assert!(probe.is_in_reserve() && another.is_in_reserve());
    assert!(!is_cut(&probe) && !is_cut(&another));
}

#[test]
fn socket_is_never_idle() {
    let connections = connections(1, 0);
    let socket = from(&connections, 1);
    socket.mark_as_socket();
    assert!(connections.admit_connection(None).is_err());
    assert!(!is_cut(&socket));
}

#[test]
fn connection_phases_have_their_own_timeouts() {
    let connections = connections(2, 1);
    let limits = connections.table.limits;
    let late = |connection: &TcpConnection, ms: u64| connection.is_overdue(ms, &limits);
    let fresh = from(&connections, 1);
    assert!(!late(&fresh, 4_000) && late(&fresh, 6_000), "it sent nothing");
    let answering = fresh.begin_request();
    assert!(!late(&fresh, 1_000_000), "its request is being answered");
    drop(answering);
    assert!(
        !late(&fresh, 70_000) && late(&fresh, 81_000),
        "it waits for its next request"
    );
    fresh.on_bytes_read();
    assert!(late(&fresh, 6_000), "it takes its time with the next one");
    let slow = from(&connections, 1);
    let _answering = slow.begin_request();
    slow.on_write_blocked();
    assert!(!late(&slow, 29_000) && late(&slow, 31_000), "it takes nothing");
    slow.on_write_progress();
    assert!(!late(&slow, 31_000));
    let _busy = fresh.begin_request();
    let reserved = from(&connections, 1);
    assert!(reserved.is_in_reserve() && late(&reserved, 2_000));
}

#[test]
fn ipv6_address_counts_as_its_64_bit_network() {
    let network = |text: &str| network_of(text.parse().unwrap()).to_string();
    assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    assert_eq!(network("2001:db8:1:2::9"), network("2001:db8:1:2:ffff::"));
    assert_ne!(network("2001:db8:1:2::9"), network("2001:db8:1:3::9"));
    assert_eq!(network("::ffff:192.0.2.7"), "192.0.2.7");
    assert_eq!(network("192.0.2.7"), "192.0.2.7");
}
