// Package client is the Go client of the relay protocol.
//
// This is its lowest layer: one connection that says hello, resumes, sends
// envelopes whose bytes the caller made, and hands over what the relay sends. It
// keeps no state on disk, encrypts nothing and does not reconnect.
//
//	conn, err := client.Dial(ctx, "ws://127.0.0.1:8787/v1/relay", client.Options{Token: token})
//	err = conn.Resume(ctx, "$", 0)
//	verdict, err := conn.Send(ctx, envelope, 0)  // or SendRaw, and read the receipts
//	frame, err := conn.Receive(ctx)              // deliver, resume_complete, ...
//	err = conn.Close()
package client
