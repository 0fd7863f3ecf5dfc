package gitdiff

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp/capability"

	"github.com/gitops-applier/gitops-applier/gitopsprovider"
)

// newRequest says what is wanted and, where that saves something, what is here.
func newRequest(adv *packp.AdvRefs, x exchange, here state) (*packp.UploadPackRequest, error) {
	server := adv.Capabilities
	request := packp.NewUploadPackRequest()
	request.Wants = x.wants
	// multi_ack changes nothing for one round, but some servers (Azure DevOps)
	// turn away whoever does not ask for it.
	bestOf(request.Capabilities, server, capability.MultiACKDetailed, capability.MultiACK)
	if !bestOf(request.Capabilities, server, capability.Sideband64k, capability.Sideband) {
		return nil, fmt.Errorf("the server cannot report errors while it sends (no side-band): %w", gitopsprovider.ErrServerNotSupported)
	}
	bestOf(request.Capabilities, server, capability.OFSDelta)
	bestOf(request.Capabilities, server, capability.NoProgress)
	if server.Supports(capability.Agent) {
		if err := request.Capabilities.Set(capability.Agent, capability.DefaultAgent()); err != nil {
			return nil, err
		}
	}
	shallow := bestOf(request.Capabilities, server, capability.Shallow)
	if shallow {
		request.Depth = packp.DepthCommits(x.depth)
	}
	if x.blobless && bestOf(request.Capabilities, server, capability.Filter) {
		request.Filter = packp.FilterBlobNone()
	}
	// A server leaves out what belongs to the commits that are here. So they are
	// named only where all of it is here, or is left out anyway, and only to a
	// server that can be told where their history ends.
	wantsCommits := x.blobless || x.tips != nil
	if wantsCommits && shallow && (!here.Partial || request.Filter != "") {
		request.Haves = hashes(here.Tips)
		request.Shallows = hashes(here.Shallow)
	}
	return request, nil
}

// bestOf asks for the first of several abilities that the server has.
func bestOf(request, server *capability.List, wanted ...capability.Capability) bool {
	for _, c := range wanted {
		if server.Supports(c) {
			return request.Set(c) == nil
		}
	}
	return false
}

// encodeRequest writes a request whose one round is its last.
func encodeRequest(request *packp.UploadPackRequest) ([]byte, error) {
	var body bytes.Buffer
	if err := request.UploadRequest.Encode(&body); err != nil {
		return nil, err
	}
	if err := request.UploadHaves.Encode(&body, false); err != nil {
		return nil, err
	}
	if err := pktline.NewEncoder(&body).EncodeString("done\n"); err != nil {
		return nil, err
	}
	return body.Bytes(), nil
}

// The channels of a side band.
const (
	bandPack     = 1
	bandProgress = 2
	bandError    = 3
)

// readResponse reads the answer to a request: where the history that the server
// sends ends, acknowledgements in any of their forms, which say nothing new
// after the last round, and the pack.
func readResponse(r io.Reader, pack io.Writer) (packp.ShallowUpdate, error) {
	var shallows packp.ShallowUpdate
	lines := pktline.NewScanner(r)
	inPack := false
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case len(line) == 0: // the end of a part
			if inPack {
				return shallows, nil
			}
		case line[0] == bandPack:
			inPack = true
			if _, err := pack.Write(line[1:]); err != nil {
				return shallows, err
			}
		case line[0] == bandProgress:
		case line[0] == bandError:
			return shallows, &refusedError{string(line[1:])}
		case !inPack && readShallow(line, &shallows):
		case !inPack && (bytes.HasPrefix(line, []byte("ACK ")) || bytes.HasPrefix(line, []byte("NAK"))):
		default:
			return shallows, fmt.Errorf("the answer is not in Git's protocol: %w", gitopsprovider.ErrServerNotSupported)
		}
	}
	var refused *pktline.ErrorLine
	switch err := lines.Err(); {
	case errors.As(err, &refused):
		return shallows, &refusedError{refused.Text}
	case errors.Is(err, pktline.ErrInvalidPktLen):
		return shallows, fmt.Errorf("the answer is not in Git's protocol: %w", gitopsprovider.ErrServerNotSupported)
	case err != nil:
		return shallows, fmt.Errorf("receiving objects: %w", err)
	case !inPack:
		// A server that refuses, over a connection that cannot say so.
		return shallows, &refusedError{"nothing, and ends the connection"}
	}
	return shallows, fmt.Errorf("receiving objects: %w", io.ErrUnexpectedEOF)
}

// mostShallows bounds how many commits without parents a server may name.
const mostShallows = 100_000

func readShallow(line []byte, update *packp.ShallowUpdate) bool {
	line = bytes.TrimSpace(line)
	list := &update.Shallows
	hash, ok := bytes.CutPrefix(line, []byte("shallow "))
	if !ok {
		list = &update.Unshallows
		hash, ok = bytes.CutPrefix(line, []byte("unshallow "))
	}
	if !ok || !plumbing.IsHash(string(hash)) || len(*list) >= mostShallows {
		return false
	}
	*list = append(*list, plumbing.NewHash(string(hash)))
	return true
}
