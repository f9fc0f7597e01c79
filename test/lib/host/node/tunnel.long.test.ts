import { once } from 'node:events';
import type { Duplex } from 'node:stream';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { createPinnedConnector } from '../../../../lib/host/node/pinned.ts';
import { openTunnel } from '../../../../lib/host/node/tunnel.ts';
import { newId } from '../../../../lib/reach/ids.ts';
import { encodeMessage } from '../../../../lib/reach/messages.ts';
import { makeIdentity } from '../../../support/certificate.ts';
import { MIB, setup } from './tunnel-support.ts';

describe('a tunnel through a broker (08 §7.9)', () => {
  it('does not reach another relay, whatever the broker does', async (context) => {
    const { endpoint, route, trust, broker } = await setup(context);
    const other = await makeIdentity(context, { san: 'DNS:relay.home' });
    const origin = { pin: other.pin, certDer: other.certDer };
    const pinned = createPinnedConnector({ trust });
    await expect(pinned.connect(endpoint.url, { ...route, origin }, new AbortController().signal)).rejects.toThrow(
      /neither the paired one/,
    );
    await vi.waitFor(() => expect(broker.tunnels).toBe(0));
  });

  it('a broker that closes, refuses the upgrade, or stalls fails in time', async (context) => {
    const { broker, connect, route, trust } = await setup(context);
    broker.behave((client) => client.close(1008));
    await expect(connect()).rejects.toThrow(/closed the connection/);
    broker.behave(() => {});
    const tunnel = route.tunnel as NonNullable<typeof route.tunnel>;
    const signal = new AbortController().signal;
    await expect(openTunnel(tunnel, { trust, signal, answerTimeout: 50 })).rejects.toThrow(/in time/);
    await expect(openTunnel({ ...tunnel, url: tunnel.url.replace('connect', 'x') }, { trust, signal })).rejects.toThrow(
      /HTTP 400/,
    );
    const abort = new AbortController();
    const stalled = connect(abort.signal);
    broker.behave(() => abort.abort());
    await expect(stalled).rejects.toThrow(/aborted/);
  });

  it('stops reading while nobody reads the stream, and writes no faster than the broker takes', async (context) => {
    const { broker, trust, route } = await setup(context);
    const tunnel = route.tunnel as NonNullable<typeof route.tunnel>;
    let sent = 0;
    let taken = 0;
    let resume = () => {};
    broker.behave((client) => {
      client.pause();
      resume = () => client.resume();
      client.on('message', (data: Buffer) => {
        taken += data.length;
      });
      client.send(encodeMessage({ type: 'matched', stream_id: newId() }));
      const more = () => {
        if (sent >= 64 * MIB || client.readyState !== client.OPEN) return;
        sent += MIB;
        client.send(Buffer.alloc(MIB), more);
      };
      more();
    });
    const stream: Duplex = await openTunnel(tunnel, { trust, signal: new AbortController().signal });
    onTestFinished(() => void stream.destroy());
    const settled = async (value: () => number) => {
      let before = -1;
      await vi.waitFor(
        () => {
          const now = value();
          const isStill = now === before && now > 0;
          before = now;
          expect(isStill).toBe(true);
        },
        { interval: 300 },
      );
    };
    stream.once('readable', () => {});
    await settled(() => sent);
    expect(sent).toBeLessThan(32 * MIB);
    expect(stream.readableLength).toBeLessThan(4 * MIB);
    let written = 0;
    while (written < 64 * MIB) {
      const isAccepted = stream.write(Buffer.alloc(MIB));
      written += MIB;
      if (!isAccepted && !(await Promise.race([once(stream, 'drain').then(() => true), later(500)]))) break;
    }
    expect(written).toBeLessThan(32 * MIB);
    resume();
    await vi.waitFor(() => expect(taken).toBe(written));
  });
});

const later = (ms: number) => new Promise<false>((resolve) => setTimeout(() => resolve(false), ms));
