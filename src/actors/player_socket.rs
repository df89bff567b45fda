//! player_socket
