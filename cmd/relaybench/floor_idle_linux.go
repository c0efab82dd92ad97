package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/gobwas/ws"
	"golang.org/x/sys/unix"
)

// idleFloor is the least a Go server can spend on an idle WebSocket: upgraded and
// hijacked from net/http, its descriptor watched by epoll, nothing else kept.
type idleFloor struct {
	epoll int
	conns chan net.Conn // hands connections to the poller, which keeps them
}

// serveIdleFloor serves on listener until ctx ends. It is a process of its own, so
// that its memory can be told apart.
func serveIdleFloor(ctx context.Context, listener net.Listener) error {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("create an epoll instance: %w", err)
	}
	defer unix.Close(epoll)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f := &idleFloor{epoll: epoll, conns: make(chan net.Conn, 64)}
	server := &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second}
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		f.poll(ctx)
	}()
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err = server.Serve(listener)
	cancel()
	<-polled
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ServeHTTP upgrades and hands the connection over.
func (f *idleFloor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	nc, _, _, err := ws.UpgradeHTTP(r, w)
	if err != nil {
		return // UpgradeHTTP has answered
	}
	_ = nc.SetDeadline(time.Time{})
	select {
	case f.conns <- nc:
	case <-r.Context().Done():
		_ = nc.Close()
	}
}

// poll keeps the connections and drops those that send or end.
func (f *idleFloor) poll(ctx context.Context) {
	kept := make(map[int32]net.Conn)
	defer func() {
		for _, nc := range kept {
			_ = nc.Close()
		}
	}()
	events := make([]unix.EpollEvent, 256)
	for ctx.Err() == nil {
		f.adopt(kept)
		n, err := unix.EpollWait(f.epoll, events, 10)
		if err != nil && err != unix.EINTR {
			return
		}
		for i := range max(n, 0) {
			if nc, ok := kept[events[i].Fd]; ok {
				if _, err := nc.Read(make([]byte, 512)); err != nil {
					delete(kept, events[i].Fd)
					_ = nc.Close()
				}
			}
		}
	}
}

// adopt watches the connections that have come.
func (f *idleFloor) adopt(kept map[int32]net.Conn) {
	for {
		select {
		case nc := <-f.conns:
			fd, err := descriptor(nc)
			if err != nil {
				_ = nc.Close()
				continue
			}
			event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: fd}
			if unix.EpollCtl(f.epoll, unix.EPOLL_CTL_ADD, int(fd), &event) != nil {
				_ = nc.Close()
				continue
			}
			kept[fd] = nc
		default:
			return
		}
	}
}

func descriptor(nc net.Conn) (int32, error) {
	tcp, ok := nc.(*net.TCPConn)
	if !ok {
		return 0, fmt.Errorf("%T has no descriptor", nc)
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return 0, err
	}
	var fd int32
	err = raw.Control(func(number uintptr) { fd = int32(number) })
	return fd, err
}
