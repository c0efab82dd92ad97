package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// secret reads one token: the first line of a file or of standard input.
func secret(con console, file, what string) (string, error) {
	in := con.in
	if file != "" && file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return "", fmt.Errorf("read the %s: %w", what, err)
		}
		defer opened.Close()
		in = opened
	} else if interactive(in) {
		con.notef("paste the %s and press Enter", what)
	}
	line, err := bufio.NewReader(io.LimitReader(in, maxCredential)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the %s: %w", what, err)
	}
	token := strings.TrimSpace(line)
	if token == "" {
		return "", fmt.Errorf("there is no %s in it", what)
	}
	return token, nil
}
