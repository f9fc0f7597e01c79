import { execFile } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import { promisify } from 'node:util';
import { WebSocket } from 'ws';

export const random = (bytes) => randomBytes(bytes).toString('base64url');
export const digestOf = (text) => createHash('sha256').update(text).digest('base64url');

/** A certificate for 127.0.0.1 and its key, as files. Needs openssl. */
export async function makeCertificate(directory) {
  const [cert, key] = [join(directory, 'cert.pem'), join(directory, 'key.pem')];
  const kind = '-x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=broker';
  const names = ['-addext', 'subjectAltName=IP:127.0.0.1'];
  await promisify(execFile)('openssl', ['req', ...kind.split(' '), ...names, '-keyout', key, '-out', cert]);
  return { cert, key };
}

/** A connection to the Secure Link listener through the broker (contract 08 §7.9), inner TLS included. */
export async function openTunnel({ url, hostId, token }) {
  const socket = new WebSocket(url, { perMessageDeflate: false, rejectUnauthorized: false });
  await once(socket, 'open');
  const credential = { role: 'client', host_id: hostId, credential_kind: 'bootstrap', token };
  socket.send(JSON.stringify({ type: 'register', protocol_version: 1, connection_id: random(16), ...credential }));
  const [answer] = await once(socket, 'message');
  const { type, code } = JSON.parse(answer);
  if (type !== 'matched') throw new Error(`the broker answers with ${code}`);
  const send = (bytes, done) => socket.send(bytes, { binary: true }, () => done());
  const stream = new Duplex({
    read: () => socket.resume(),
    write: (chunk, _encoding, done) => send(chunk, done),
    writev: (chunks, done) => send(Buffer.concat(chunks.map(({ chunk }) => chunk)), done),
    destroy(error, done) {
      socket.close();
      done(error);
    },
  });
  socket.on('message', (data) => {
    if (!stream.push(data)) socket.pause();
  });
  socket.on('error', () => {});
  socket.once('close', () => stream.push(null));
  const tls = connectTls({ socket: stream, rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] });
  await once(tls, 'secureConnect');
  tls.on('error', () => {});
  tls.once('close', () => stream.destroy());
  return tls;
}
