package worker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/swampd/swampd/worker/dataproxy"
)

// defaultPatience is how long steps wait for an orchestrator that is away, where it has not said what its grace is.
const defaultPatience = time.Minute

// dataPlane is how this worker reaches the data plane for its steps.
type dataPlane struct {
	base      *url.URL
	transport http.RoundTripper
	spools    string // the folder of what its steps are sending
}

// newDataPlane returns nil where the worker has no way there: it dials by a function of somebody else's, who has named no
// transport.
func newDataPlane(cfg Config) (*dataPlane, error) {
	p := &dataPlane{base: &url.URL{Scheme: "http", Host: "orchestrator"}, transport: cfg.DataTransport, spools: filepath.Join(os.TempDir(), "swamp-worker")}
	if cfg.CacheDir != "" {
		p.spools = spoolRoot(cfg.CacheDir)
	}
	switch {
	case p.transport != nil:
	case cfg.URL == "":
		return nil, nil //nolint:nilnil // no data plane is no error
	default:
		u, err := ParseURL(cfg.URL)
		if err != nil {
			return nil, err
		}
		p.base, p.transport = httpURL(u), dataTransport()
	}
	return p, nil
}

// httpURL is where HTTP is spoken with the orchestrator whose WebSocket is at u.
func httpURL(u *url.URL) *url.URL {
	scheme := u.Scheme
	switch scheme {
	case "ws":
		scheme = "http"
	case "wss":
		scheme = "https"
	}
	return &url.URL{Scheme: scheme, Host: u.Host}
}

// dataTransport connects as dial does.
func dataTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSHandshakeTimeout: dialTimeout,
		DialContext:         (&net.Dialer{Timeout: dialTimeout}).DialContext,
		DisableCompression:  true, // lengths and ranges are those of the artifact
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     time.Minute,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      64 << 10,
	}
}

// forget closes connections that nobody uses: they may be dead without knowing.
func (p *dataPlane) forget() {
	if p == nil {
		return
	}
	if t, ok := p.transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// of is a step's way to data, or nil.
func (p *dataPlane) of(d *dispatch, patience func() time.Duration) http.RoundTripper {
	if p == nil {
		return nil
	}
	way, err := dataproxy.New(dataproxy.Config{
		Base: p.base, Transport: p.transport, Credential: d.credential.get, Patience: patience, SpoolDir: p.spools,
	})
	if err != nil {
		panic(fmt.Sprintf("a data plane that was made is not whole: %v", err)) // all of it is set above
	}
	return way
}

// patience is how long a step's request waits for an orchestrator that is away: as long as that gives the worker.
func (a *Agent) patience() time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.grace
}

// credentialBoard shows the credential of one step.
type credentialBoard struct {
	mu      sync.Mutex
	value   string
	changed chan struct{} // closed when value is replaced
}

func newCredentialBoard() *credentialBoard { return &credentialBoard{changed: make(chan struct{})} }

func (b *credentialBoard) set(value string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if value == b.value {
		return
	}
	b.value = value
	close(b.changed)
	b.changed = make(chan struct{})
}

// get returns the credential and a channel that is closed when it is replaced.
func (b *credentialBoard) get() (value string, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.value, b.changed
}

// dataSocket is the socket of one step, and the folder that holds nothing else.
type dataSocket struct {
	*dataproxy.Socket
	dir string
}

// dataSocketName is the socket's in its folder.
const dataSocketName = "data.sock"

// openDataSocket serves a step's way to data in a folder of its own: in its scratch folder where the path is short enough
// for a socket, else below the folder for temporary files.
func openDataSocket(way http.RoundTripper, cacheDir string, s scratch) (*dataSocket, error) {
	dir := filepath.Join(s.dir, ".swamp-data")
	if tooLong(dir) {
		dir = ""
		for _, parent := range shortParents() {
			if !tooLong(filepath.Join(parent, shortFolders(cacheDir)+"4294967295")) {
				dir = parent
				break
			}
		}
		if dir == "" {
			return nil, fmt.Errorf("folder for the data socket: the paths of %s and %s are too long", s.dir, os.TempDir())
		}
		made, err := os.MkdirTemp(dir, shortFolders(cacheDir)+"*")
		if err != nil {
			return nil, fmt.Errorf("folder for the data socket: %w", err)
		}
		dir = made
	} else if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("folder for the data socket: %w", err)
	}
	socket, err := dataproxy.Listen(way, filepath.Join(dir, dataSocketName))
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	return &dataSocket{socket, dir}, nil
}

func (s *dataSocket) close() error {
	err := s.Close()
	if remove := os.RemoveAll(s.dir); remove != nil {
		return fmt.Errorf("remove the folder of the data socket: %w", remove)
	}
	return err
}

func tooLong(dir string) bool { return len(filepath.Join(dir, dataSocketName)) > dataproxy.MaxPath }

// shortParents are the folders below which a path is short, the best first.
func shortParents() []string {
	if runtime.GOOS == "windows" {
		return []string{os.TempDir()}
	}
	return []string{os.TempDir(), "/tmp"}
}

// shortFolders is how the folders with short paths begin that a worker on cacheDir makes.
func shortFolders(cacheDir string) string {
	sum := sha256.Sum256([]byte(cacheDir))
	return "swamp-" + hex.EncodeToString(sum[:4]) + "-"
}

// sweepShortFolders removes those that an earlier process left. The machine must be locked.
func sweepShortFolders(cacheDir string) {
	dir, err := filepath.Abs(cacheDir)
	if err != nil {
		return
	}
	for _, parent := range shortParents() {
		left, _ := filepath.Glob(filepath.Join(parent, shortFolders(dir)+"*"))
		for _, folder := range left {
			_ = os.RemoveAll(folder) // another user's stays, and an own one that stays does no harm
		}
	}
}
