package cli

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// defaultListen is where an orchestrator listens, and where a client looks for it, unless told otherwise.
const defaultListen = "127.0.0.1:4000"

// isLoopback tells whether a host name or address is this machine's own.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// defaultDataDir is where an orchestrator keeps its data unless told otherwise.
func defaultDataDir(h *Host) string {
	if dir, ok := h.env("XDG_STATE_HOME"); ok && filepath.IsAbs(dir) {
		return filepath.Join(dir, "swampd")
	}
	if runtime.GOOS != "windows" && os.Getuid() == 0 {
		return "/var/lib/swampd"
	}
	if dir, ok := h.env("LOCALAPPDATA"); ok && runtime.GOOS == "windows" {
		return filepath.Join(dir, "swampd")
	}
	if home, ok := h.env("HOME"); ok {
		return filepath.Join(home, ".local", "state", "swampd")
	}
	return ""
}
