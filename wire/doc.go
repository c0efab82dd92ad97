// Package wire knows the bytes of the relay protocol and nothing else: every
// frame, the envelope, the limits, and the one table of codes.
//
// The flow of a connection (RELAY, first section; DESIGN section 6):
//
//	client                                relay
//	  hello {token, direct}        ->
//	                               <-     welcome {participant_id, session_id}
//	  resume {last_id, limit}      ->
//	                               <-     deliver / board.update / room.event {replay:true} ...
//	                               <-     resume_complete {replayed, more}
//	                               <-     deliver ... {replay:false}, any time after resume
//	  <envelope>                   ->
//	                               <-     queued {id, stream_id, to} per recipient, or one nack {id, reason}
//	                               <-     ping {id} every 25 s
//	  pong {id}                    ->
//
// A frame is one WebSocket text message holding one JSON object. A control frame
// has a "type" member; an envelope has none, and its bytes are kept and forwarded
// exactly as they came.
package wire
