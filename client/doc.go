// Package client is the Go client of the relay.
//
// A Device is who uses a relay: its keys in a folder, and what it does over HTTP. It
// enrolls with an invite, people compare its fingerprint and an admin approves it; then it
// signs in by itself, becomes active, and is in rooms:
//
//	device, err := client.EnrollDevice(ctx, "alice", client.Enrollment{RelayURL: url, Invite: token, Kind: client.KindHuman, Label: "laptop"}, client.DeviceOptions{})
//	device, err := client.OpenDevice("alice", client.DeviceOptions{}) // from then on
//	_, err = device.PublishKeys(ctx)                                  // once it is approved
//	room, err := device.CreateRoom(ctx, client.NewRoom{})
//	credential, err := device.MintCredential(ctx, room.RoomID, 0)
//	conn, err := device.Connect(ctx, credential)
//
// A Conn is one connection as a participant of a room. It says hello, resumes, sends
// envelopes whose bytes the caller made, and hands over what the relay sends. It keeps no
// state on disk, encrypts nothing and does not reconnect; a credential is all it needs:
//
//	conn, err := client.Dial(ctx, "ws://127.0.0.1:8787/v1/relay", client.Options{Token: token})
//	err = conn.Resume(ctx, "$", 0)
//	verdict, err := conn.Send(ctx, envelope, 0)  // or SendRaw, and read the receipts
//	frame, err := conn.Receive(ctx)              // deliver, resume_complete, ...
//	err = conn.Close()
package client
