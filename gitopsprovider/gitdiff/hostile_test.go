package gitdiff_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"context"
	"crypto/sha1" //nolint:gosec // Git's
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
	"github.com/gitops-applier/gitops-applier/gitopsprovider/gitdiff"
)

func pktLine(s string) string { return fmt.Sprintf("%04x%s", len(s)+4, s) }

// refuseUnadvertised answers as a server that gives out the tips of refs alone.
func refuseUnadvertised(r *repo) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.Method != http.MethodPost {
				next.ServeHTTP(w, req)
				return
			}
			body, _ := io.ReadAll(req.Body)
			refs, _ := r.try("", nil, "show-ref")
			for _, line := range strings.Split(string(body), "\n") {
				if _, want, ok := strings.Cut(line, "want "); ok && !strings.Contains(refs, want[:40]) {
					w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
					_, _ = io.WriteString(w, pktLine("ERR upload-pack: not our ref "+want[:40]))
					return
				}
			}
			req.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, req)
		})
	}
}

func TestAServerMayRefuseCommitsByTheirHash(t *testing.T) {
	t.Parallel()
	for config, refuse := range map[string]bool{
		"":                                      false,
		"uploadpack.allowTipSHA1InWant":         false,
		"uploadpack.allowReachableSHA1InWant":   false,
		"uploadpack.allowAnySHA1InWant":         false,
		"uploadpack.allowFilter":                false,
		"uploadpack.allowFilter, but no hashes": true,
		"no hashes":                             true,
	} {
		t.Run(or(config, "as it comes"), func(t *testing.T) {
			t.Parallel()
			r := newRepo(t)
			h := &history{}
			last := h.commit("main", "root")
			for i := range 150 {
				last = h.commit("main", fmt.Sprintf("commit %d", i), last)
				h.text("a.yaml", fmt.Sprint(i))
			}
			middle := last
			for i := range 80 {
				last = h.commit("main", fmt.Sprintf("later %d", i), last)
				h.text("b.yaml", fmt.Sprint(i))
			}
			h.commit("other", "on another branch", middle)
			h.text("c.yaml", "c")
			h.commit("other", "after it", fmt.Sprintf(":%d", h.mark))
			h.text("d.yaml", "d")
			h.into(r)
			name, _, _ := strings.Cut(config, ",")
			if strings.HasPrefix(name, "uploadpack.") {
				r.git("config", name, "true")
				r.git("config", "uploadpack.allowAnySHA1InWant", fmt.Sprint(name == "uploadpack.allowAnySHA1InWant"))
			}
			server := serve(t, r)
			if refuse {
				server = serve(t, r, refuseUnadvertised(r))
			}
			for _, test := range []struct{ from, to, branch, want string }{
				{"", "main~80", "main", "Modified a.yaml"},
				{"main~100", "main~80", "", "Modified a.yaml"},
				{"", "other~1", "refs/heads/other", "Added c.yaml"},
				{"", "other~1", "", "Added c.yaml"},
				{"main~85", "other~1", "gone", "Added c.yaml"},
			} {
				d := newDiffer(t, gitdiff.Options{})
				q := gitopsprovider.DiffQuery{Repository: server.url, Branch: test.branch, To: r.in(t).rev(test.to)}
				if test.from != "" {
					q.From = r.in(t).rev(test.from)
				}
				for range 2 {
					got, err := d.Diff(t.Context(), q)
					require.NoError(t, err)
					assert.Contains(t, summary(got), test.want)
				}
				q.Path = "a.yaml"
				q.From, q.To = "", r.in(t).rev("main~1")
				got, err := d.Diff(t.Context(), q)
				require.NoError(t, err)
				assert.True(t, got.NewestTouching)
				assert.Equal(t, "commit 149", got.Commit.Subject)
				history, err := d.History(t.Context(), gitopsprovider.HistoryQuery{Repository: server.url, Revision: r.in(t).rev("main~1")})
				require.NoError(t, err)
				assert.Equal(t, 229, len(history.Commits)) //nolint:testifylint // Len prints them all
			}
			_, err := newDiffer(t, gitdiff.Options{}).Diff(t.Context(), gitopsprovider.DiffQuery{
				Repository: server.url, To: "1eabc9a41ca088515cab83f1cce49eb43e84b67f", From: r.in(t).rev("main"),
			})
			assert.ErrorIs(t, err, gitopsprovider.ErrCommitNotFound)
			assert.ErrorContains(t, err, "commit 1eabc9a41ca088515cab83f1cce49eb43e84b67f")
		})
	}
}

// What was fetched before, and where its history ended, is no obstacle.
func TestACommitBelowTheEndOfAFetchedHistoryIsFound(t *testing.T) {
	t.Parallel()
	s := newScenario(t, gitdiff.Options{}, func(h *history) {
		root := h.commit("main", "root")
		h.text("a.yaml", "0\n")
		last := root
		for i := range 100 {
			last = h.commit("other", "next", last)
			h.text("b.yaml", fmt.Sprint(i))
		}
		h.commit("main", "on main", root)
		h.text("a.yaml", "1\n")
	})
	s.server = serve(t, s.repo, refuseUnadvertised(s.repo))
	assert.Len(t, s.mustDiff("", "other", "").Files, 1, "a tip, with its parent")
	assert.Len(t, s.mustDiff("", "main", "").Files, 1)
	assert.Len(t, s.mustDiff("", "other~50", "").Files, 1, "on a branch that is neither named nor the default one")
	assert.Len(t, s.mustDiff("main", "other~70", "").Files, 2)
	h, err := s.differ.History(t.Context(), gitopsprovider.HistoryQuery{Repository: s.server.url, Revision: s.rev("other")})
	require.NoError(t, err)
	assert.Equal(t, 101, len(h.Commits)) //nolint:testifylint // Len prints them all
}

func TestAnEmptyRepositoryHasNoCommit(t *testing.T) {
	t.Parallel()
	server := serve(t, newRepo(t))
	_, err := newDiffer(t, gitdiff.Options{}).Diff(t.Context(), gitopsprovider.DiffQuery{Repository: server.url, To: "1eabc9a41ca088515cab83f1cce49eb43e84b67f"})
	assert.ErrorIs(t, err, gitopsprovider.ErrCommitNotFound)
}

func TestARepositoryThatIsNotThere(t *testing.T) {
	t.Parallel()
	server := serve(t, newRepo(t))
	_, err := newDiffer(t, gitdiff.Options{}).Diff(t.Context(), gitopsprovider.DiffQuery{Repository: server.url + "-not", To: "1eabc9a41ca088515cab83f1cce49eb43e84b67f"})
	assert.ErrorIs(t, err, gitopsprovider.ErrRepositoryNotFound)
}

// replaceAnswer lets the first answer through and replaces the second one.
func replaceAnswer(answer func(w http.ResponseWriter, r *http.Request, original []byte)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost {
				next.ServeHTTP(w, r)
				return
			}
			recorder := httptest.NewRecorder()
			next.ServeHTTP(recorder, r)
			w.Header().Set("Content-Type", "application/x-git-upload-pack-result")
			answer(w, r, recorder.Body.Bytes())
		})
	}
}

// always answers everything.
func always(handler http.HandlerFunc) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler { return handler }
}

func advertise(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
	_, _ = io.WriteString(w, body)
}

// packOf makes a pack of objects, each a type and what is deflated.
func packOf(count uint32, objects ...[]byte) []byte {
	var b bytes.Buffer
	b.WriteString("PACK")
	_ = binary.Write(&b, binary.BigEndian, []uint32{2, count})
	for _, o := range objects {
		b.Write(o)
	}
	sum := sha1.Sum(b.Bytes()) //nolint:gosec // Git's
	b.Write(sum[:])
	return b.Bytes()
}

func packObject(kind byte, size uint64, data io.Reader) []byte {
	var b bytes.Buffer
	first := kind<<4 | byte(size&15)
	for size >>= 4; size > 0; size >>= 7 {
		b.WriteByte(first | 0x80)
		first = byte(size & 127)
	}
	b.WriteByte(first)
	z := zlib.NewWriter(&b)
	_, _ = io.Copy(z, data)
	_ = z.Close()
	return b.Bytes()
}

// deltaChain makes a pack of an object and deltas, each of which makes the same of
// the one before.
func deltaChain(deltas int, size uint64) []byte {
	last := packObject(3, size, io.LimitReader(zeros{}, int64(size)))
	objects := [][]byte{last}
	for range deltas {
		delta := binary.AppendUvarint(binary.AppendUvarint(nil, size), size)
		delta = append(delta, bytes.Repeat([]byte{0x80 | 0x20 | 0x40, 0, 0x80}, int(size>>15))...) // copies of 32 KiB
		o := packObject(6, uint64(len(delta)), bytes.NewReader(delta))
		header := 1
		for o[header-1]&0x80 != 0 {
			header++
		}
		back := uint64(len(last))
		offset := []byte{byte(back & 127)}
		for back >>= 7; back > 0; back >>= 7 {
			back--
			offset = append([]byte{0x80 | byte(back&127)}, offset...)
		}
		last = append(append(append([]byte{}, o[:header]...), offset...), o[header:]...)
		objects = append(objects, last)
	}
	return packOf(uint32(len(objects)), objects...)
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// answerPack sends a pack after what the server would have said before its own.
func answerPack(pack []byte) func(http.Handler) http.Handler {
	return replaceAnswer(func(w http.ResponseWriter, _ *http.Request, original []byte) {
		pack, begin := pack, bytes.Index(original, []byte("\x01PACK"))-4
		_, _ = w.Write(original[:begin])
		for len(pack) > 0 {
			n := min(len(pack), 60000)
			_, _ = io.WriteString(w, pktLine("\x01"+string(pack[:n])))
			pack = pack[n:]
		}
		_, _ = io.WriteString(w, "0000")
	})
}

func TestHostileServers(t *testing.T) {
	t.Parallel()
	bomb := packObject(3, 1<<25, io.LimitReader(zeros{}, 1<<25))
	liar := packObject(3, 10, io.LimitReader(zeros{}, 1<<20))
	// A delta of some bytes that makes a gigabyte of its base.
	delta := append(binary.AppendUvarint(binary.AppendUvarint(nil, 1<<16), 1<<30), bytes.Repeat([]byte{0x80 | 0x40, 0xff}, 1000)...)
	base := packObject(3, 1<<16, io.LimitReader(zeros{}, 1<<16))
	deltaObject := packObject(6, uint64(len(delta)), bytes.NewReader(delta))
	ofs := append([]byte{}, deltaObject[:2]...)
	ofs = append(append(ofs, byte(len(base))), deltaObject[2:]...)

	for name, test := range map[string]struct {
		server func(http.Handler) http.Handler
		limits gitdiff.Limits
		want   error
		says   string
	}{
		"not Git": {
			server: always(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>welcome</html>") }),
			want:   gitopsprovider.ErrServerNotSupported, says: "not in Git's smart protocol",
		},
		"garbage for refs": {
			server: always(func(w http.ResponseWriter, _ *http.Request) { advertise(w, strings.Repeat("garbage", 1000)) }),
			want:   gitopsprovider.ErrServerNotSupported,
		},
		"nothing for refs": {
			server: always(func(w http.ResponseWriter, _ *http.Request) { advertise(w, "") }),
			want:   gitopsprovider.ErrServerNotSupported,
		},
		"cut in the refs": {
			server: always(func(w http.ResponseWriter, _ *http.Request) { advertise(w, "001e# service=git-upload-pack\n000000f8") }),
			says:   "reading what the server has",
		},
		"refs without end": {
			server: always(func(w http.ResponseWriter, _ *http.Request) {
				advertise(w, "001e# service=git-upload-pack\n0000"+pktLine(strings.Repeat("1", 40)+" HEAD\x00shallow side-band-64k\n"))
				for i := 0; ; i++ {
					if _, err := io.WriteString(w, pktLine(fmt.Sprintf("%040x refs/heads/%d\n", i+1, i))); err != nil {
						return
					}
				}
			}),
			limits: gitdiff.Limits{FetchBytes: 1 << 20},
			want:   gitopsprovider.ErrLimit, says: "sent more than 1048576 bytes",
		},
		"an error": {
			server: always(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }),
			says:   "the server answers 502 Bad Gateway",
		},
		"an error in Git's words": {
			server: always(func(w http.ResponseWriter, _ *http.Request) { advertise(w, pktLine("ERR out of cheese")) }),
			says:   `the server says "out of cheese"`,
		},
		"no repository, in Git's words": {
			server: always(func(w http.ResponseWriter, _ *http.Request) { advertise(w, pktLine("ERR Repository not found.")) }),
			want:   gitopsprovider.ErrRepositoryNotFound,
		},
		"a bad request": {
			server: always(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadRequest) }),
			want:   gitopsprovider.ErrServerNotSupported,
		},
		"hangs before the headers": {
			server: always(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
			limits: gitdiff.Limits{Time: 200 * time.Millisecond},
			want:   gitopsprovider.ErrLimit, says: "no answer within 200ms",
		},
		"hangs in the refs": {
			server: always(func(w http.ResponseWriter, r *http.Request) {
				advertise(w, "001e#")
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}),
			limits: gitdiff.Limits{Time: 200 * time.Millisecond},
			want:   gitopsprovider.ErrLimit,
		},
		"hangs in the pack": {
			server: replaceAnswer(func(w http.ResponseWriter, r *http.Request, original []byte) {
				_, _ = w.Write(original[:len(original)/2])
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			}),
			limits: gitdiff.Limits{Time: 300 * time.Millisecond},
			want:   gitopsprovider.ErrLimit,
		},
		"cut in the pack": {
			server: replaceAnswer(func(w http.ResponseWriter, _ *http.Request, original []byte) {
				_, _ = w.Write(original[:len(original)-200])
			}),
			says: "receiving objects: unexpected EOF",
		},
		"a pack with another byte": {
			server: replaceAnswer(func(w http.ResponseWriter, _ *http.Request, original []byte) {
				original[len(original)-100] ^= 1
				_, _ = w.Write(original)
			}),
			says: "cannot be read",
		},
		"garbage for the pack": {
			server: replaceAnswer(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
				_, _ = io.WriteString(w, strings.Repeat("garbage", 1000))
			}),
			want: gitopsprovider.ErrServerNotSupported,
		},
		"a pack of nothing": {server: answerPack(packOf(0)), want: gitopsprovider.ErrCommitNotFound},
		"a pack of something else": {
			server: answerPack(packOf(1, packObject(3, 5, strings.NewReader("hello")))),
			want:   gitopsprovider.ErrCommitNotFound,
		},
		"a pack that announces too much": {server: answerPack(packOf(1<<32-1, packObject(3, 5, strings.NewReader("hello")))), says: "more objects than it can hold"},
		"an object that unpacks to too much": {
			server: answerPack(packOf(1, bomb)),
			limits: gitdiff.Limits{ObjectBytes: 1 << 24},
			want:   gitopsprovider.ErrLimit, says: "an object of more than",
		},
		"an object that unpacks to more than it says": {server: answerPack(packOf(1, liar)), says: "cannot be read"},
		"a delta that makes a gigabyte": {
			server: answerPack(packOf(2, base, ofs)),
			want:   gitopsprovider.ErrLimit, says: "an object of more than",
		},
		"a long chain of large deltas": {
			server: answerPack(deltaChain(20, 1<<20)),
			limits: gitdiff.Limits{ObjectBytes: 1 << 20},
			want:   gitopsprovider.ErrLimit, says: "deltas that unpack to more than",
		},
		"objects that unpack to too much together": {
			server: answerPack(packOf(70, bytes.Repeat(packObject(3, 1<<20, io.LimitReader(zeros{}, 1<<20)), 70))),
			limits: gitdiff.Limits{ObjectBytes: 1 << 20},
			want:   gitopsprovider.ErrLimit, says: "unpacks to more than",
		},
		"an endless pack": {
			server: replaceAnswer(func(w http.ResponseWriter, _ *http.Request, original []byte) {
				_, _ = w.Write(original[:bytes.Index(original, []byte("\x01PACK"))-4])
				line := pktLine("\x01" + strings.Repeat("x", 60000))
				for {
					if _, err := io.WriteString(w, line); err != nil {
						return
					}
				}
			}),
			limits: gitdiff.Limits{FetchBytes: 4 << 20},
			want:   gitopsprovider.ErrLimit, says: "sent more than",
		},
		"endless progress": {
			server: replaceAnswer(func(w http.ResponseWriter, _ *http.Request, _ []byte) {
				for {
					if _, err := io.WriteString(w, pktLine("\x02working\n")); err != nil {
						return
					}
				}
			}),
			limits: gitdiff.Limits{FetchBytes: 1 << 20},
			want:   gitopsprovider.ErrLimit,
		},
		"an answer in gzip that unpacks to too much": {
			server: always(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
				z := gzip.NewWriter(w)
				_, _ = io.WriteString(z, "001e# service=git-upload-pack\n0000"+pktLine(strings.Repeat("1", 40)+" HEAD\x00shallow\n"))
				line := pktLine(strings.Repeat("1", 40) + " refs/heads/x\n")
				_, _ = io.WriteString(z, strings.Repeat(line, 100_000))
				_ = z.Close()
			}),
			limits: gitdiff.Limits{FetchBytes: 1 << 20},
			want:   gitopsprovider.ErrLimit,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := newScenario(t, gitdiff.Options{Dir: dir, Limits: test.limits}, twoCommits)
			var hostile atomic.Bool
			hostile.Store(true)
			s.server = serve(t, s.repo, func(next http.Handler) http.Handler {
				bad := test.server(next)
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if hostile.Load() {
						bad.ServeHTTP(w, r)
						return
					}
					next.ServeHTTP(w, r)
				})
			})
			_, err := s.diff("", "main", "")
			require.Error(t, err)
			if test.want != nil {
				assert.ErrorIs(t, err, test.want)
			}
			assert.ErrorContains(t, err, test.says)
			left, err := filepath.Glob(filepath.Join(dir, "gitdiff-v1", "*", "objects", "pack", "tmp_*"))
			require.NoError(t, err)
			assert.Empty(t, left)

			hostile.Store(false)
			s.differ = newDiffer(t, gitdiff.Options{Dir: dir})
			assert.Equal(t, []string{"Modified a.yaml"}, summary(s.mustDiff("", "main", "")))
		})
	}
}

func TestACallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	blocked, release := make(chan struct{}), make(chan struct{})
	s := newScenario(t, gitdiff.Options{}, twoCommits)
	s.server = serve(t, s.repo, blockPosts(blocked, release))
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-blocked
		cancel()
	}()
	_, err := s.differ.Diff(ctx, gitopsprovider.DiffQuery{Repository: s.server.url, To: s.rev("main")})
	assert.ErrorIs(t, err, context.Canceled)
}
