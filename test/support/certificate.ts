import { execFile } from 'node:child_process';
import { createHash, X509Certificate } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { TestContext } from 'vitest';
import { temporaryDirectory } from './temp.ts';

const ARGUMENTS = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost';

/** Makes a self-signed certificate and its key in `directory`. Skips the test where there is no openssl. */
export async function selfSigned(context: TestContext, directory: string): Promise<{ cert: string; key: string }> {
  const [cert, key] = [join(directory, 'cert.pem'), join(directory, 'key.pem')];
  try {
    await promisify(execFile)('openssl', [...ARGUMENTS.split(' '), '-keyout', key, '-out', cert]);
  } catch (error) {
    context.skip(`no certificate can be made here with openssl: ${error}`);
  }
  return { cert, key };
}

export interface Identity {
  /** PEM. */
  cert: string;
  key: string;
  pin: string;
  /** As in a pairing link. */
  certDer: string;
}

export interface IdentityOptions {
  /** Such as `IP:127.0.0.1` or `DNS:localhost`. */
  san: string;
  /** -1: expired yesterday. */
  days?: number;
  /** PEM; a new one without it. */
  key?: string;
  /** Of another certificate: signed by it, and not by itself. */
  issuer?: Pick<Identity, 'cert' | 'key'>;
}

/** A certificate as Secure Link makes them (contract 08 §2.2). Skips the test where there is no openssl. */
export async function makeIdentity(context: TestContext, options: IdentityOptions): Promise<Identity> {
  const { san, days = 2, issuer } = options;
  const directory = await temporaryDirectory();
  const file = (name: string) => join(directory, name);
  const run = (...args: string[]) => promisify(execFile)('openssl', args, { cwd: directory });
  try {
    if (options.key) await writeFile(file('key.pem'), options.key);
    else await run(...'ecparam -name prime256v1 -genkey -noout -out key.pem'.split(' '));
    const constraints = 'basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,digitalSignature,keyCertSign';
    await writeFile(file('ext'), `subjectAltName=${san}\n${constraints}\nextendedKeyUsage=serverAuth\n`);
    await run(
      'req',
      '-new',
      '-key',
      'key.pem',
      '-subj',
      `/CN=${issuer ? 'Issued' : 'svc Secure Link'}`,
      '-out',
      'csr.pem',
    );
    if (issuer) {
      await writeFile(file('ca.pem'), issuer.cert);
      await writeFile(file('ca-key.pem'), issuer.key);
    }
    const signer = issuer ? ['-CA', 'ca.pem', '-CAkey', 'ca-key.pem', '-CAcreateserial'] : ['-signkey', 'key.pem'];
    await run('x509', '-req', '-in', 'csr.pem', ...signer, '-days', `${days}`, '-extfile', 'ext', '-out', 'cert.pem');
  } catch (error) {
    context.skip(`no certificate can be made here with openssl: ${error}`);
  }
  const [cert, key] = await Promise.all(['cert.pem', 'key.pem'].map((name) => readFile(file(name), 'utf8')));
  const { raw, publicKey } = new X509Certificate(cert as string);
  const spki = publicKey.export({ type: 'spki', format: 'der' });
  const pin = `sha256/${createHash('sha256').update(spki).digest('base64')}`;
  return { cert: cert as string, key: key as string, pin, certDer: raw.toString('base64') };
}

/** A private authority and a certificate of it for `localhost`, all in PEM files in `directory`. */
export async function privateAuthority(
  context: TestContext,
  directory: string,
  name = 'authority',
): Promise<{ ca: string; cert: string; key: string }> {
  const file = (kind: string) => join(directory, `${name}-${kind}.pem`);
  const [ca, caKey, cert, key] = [file('ca'), file('ca-key'), file('cert'), file('key')];
  const newKey = 'req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2'.split(' ');
  const run = (...args: string[]) => promisify(execFile)('openssl', [...newKey, ...args]);
  try {
    await run('-subj', `/CN=${name}`, '-keyout', caKey, '-out', ca);
    const names = ['-addext', 'subjectAltName=DNS:localhost', '-addext', 'basicConstraints=CA:FALSE'];
    await run('-subj', '/CN=localhost', ...names, '-CA', ca, '-CAkey', caKey, '-keyout', key, '-out', cert);
  } catch (error) {
    context.skip(`no certificate can be made here with openssl: ${error}`);
  }
  return { ca, cert, key };
}
