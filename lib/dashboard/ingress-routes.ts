const VOICE_AREAS = ['output', 'realtime', 'realtime-agent'];

/** THE allowlist of the dashboard's ingress, which forwards nothing else to the relay (contract 07 §4.3). */
export const ingressRoutes: readonly (readonly [method: string, path: string])[] = [
  ['GET', '/health'],
  ['POST', '/media/upload'],
  ['GET', '/media/by-path'],
  ['GET', '/media/{token}'],
  ['POST', '/clipboard/inbox'],
  ['GET', '/chat/image-activity'],
  ['GET', '/context/injected'],
  ['GET', '/phone/threads'],
  ['GET', '/relay/info'],
  ['GET', '/relay/update-check'],
  ['POST', '/relay/model-capabilities'],
  ['GET', '/usage/providers'],
  ['GET', '/sessions'],
  ['PATCH', '/sessions/{token_prefix}'],
  ['DELETE', '/sessions/{token_prefix}'],
  ['GET', '/api/profiles/{name}/config'],
  ['GET', '/api/profiles/{name}/avatar'],
  ['GET', '/api/profiles/{name}/skills'],
  ['GET', '/api/profiles/{name}/soul'],
  ['GET', '/api/profiles/{name}/memory'],
  ['PUT', '/api/profiles/{name}/soul'],
  ['PUT', '/api/profiles/{name}/memory/{filename}'],
  ['POST', '/voice/transcribe'],
  ['POST', '/voice/synthesize'],
  ['GET', '/voice/config'],
  ...VOICE_AREAS.flatMap((area) => [
    ['GET', `/voice/${area}/config`] as const,
    ['PATCH', `/voice/${area}/config`] as const,
    ['GET', `/voice/${area}/providers/{id}/options`] as const,
    ['POST', `/voice/${area}/providers/{id}/validate`] as const,
    ['POST', `/voice/${area}/session`] as const,
  ]),
];

/** The sockets that the ingress forwards. */
export const ingressSockets: readonly string[] = ['/ws', ...VOICE_AREAS.map((area) => `/voice/${area}/{session_id}`)];

/** Forms of parameters; any other parameter is one segment. */
const FORMS: Readonly<Record<string, RegExp>> = {
  '{token}': /^[A-Za-z0-9_-]{20,64}$/,
  '{token_prefix}': /^[A-Za-z0-9_-]{8,64}$/,
  '{session_id}': /^[A-Za-z0-9_-]{16,128}$/,
};

export type IngressMatch =
  /** The relay's path, with every parameter encoded anew. */
  | { kind: 'route'; path: string }
  /** `allow` lists the methods of the path. */
  | { kind: 'method'; allow: string }
  | { kind: 'none' };

const NONE: IngressMatch = { kind: 'none' };

/**
 * Returns a matcher for the method and path of a request line, without the query. Fixed segments are compared as sent,
 * so an escaped one does not match. `HEAD` goes where `GET` does (contract 00).
 */
export function createIngressMatcher(
  routes: readonly (readonly [method: string, path: string])[] = ingressRoutes,
): (method: string, path: string) => IngressMatch {
  const methodsOf = new Map<string, Set<string>>();
  for (const [method, path] of routes) {
    const methods = methodsOf.get(path) ?? new Set();
    methodsOf.set(path, methods.add(method));
    if (method === 'GET') methods.add('HEAD');
  }
  const fixed = new Map<string, Set<string>>();
  const patterns: { segments: readonly string[]; methods: Set<string> }[] = [];
  for (const [path, methods] of methodsOf) {
    if (path.includes('{')) patterns.push({ segments: path.split('/'), methods });
    else fixed.set(path, methods);
  }

  const decide = (methods: Set<string>, method: string, path: string): IngressMatch =>
    methods.has(method) ? { kind: 'route', path } : { kind: 'method', allow: [...methods].sort().join(', ') };

  return (method, path) => {
    const found = fixed.get(path);
    if (found) return decide(found, method, path);
    for (const { segments, methods } of patterns) {
      const forwarded = forwardedPath(segments, path);
      if (forwarded !== null) return decide(methods, method, forwarded);
    }
    return NONE;
  };
}

/** The path rebuilt from a pattern: every parameter decoded, checked and encoded again. Null if it does not match. */
function forwardedPath(pattern: readonly string[], path: string): string | null {
  const segments = path.split('/');
  if (segments.length !== pattern.length) return null;
  for (const [index, expected] of pattern.entries()) {
    const segment = segments[index] as string;
    if (!expected.startsWith('{')) {
      if (segment !== expected) return null;
      continue;
    }
    const value = decodeSegment(segment);
    if (value === null || FORMS[expected]?.test(value) === false) return null;
    segments[index] = encodeURIComponent(value);
  }
  return segments.join('/');
}

/** A path segment, decoded once. Null if it is empty, malformed, or could lead to another path. */
function decodeSegment(segment: string): string | null {
  try {
    const value = decodeURIComponent(segment);
    return value === '' || value === '.' || value === '..' || /[/\\]/.test(value) ? null : value;
  } catch {
    return null;
  }
}

export interface IngressSocket {
  /** The relay's path; null if the session id is malformed. */
  path: string | null;
  /** True if the upgrade has to carry the session header. */
  needsSession: boolean;
}

/** Returns the socket route for the path of a request line, without the query; null if no route matches. */
export function matchIngressSocket(path: string): IngressSocket | null {
  if (path === '/ws') return { path, needsSession: false };
  for (const pattern of ingressSockets) {
    const base = pattern.slice(0, pattern.lastIndexOf('/') + 1);
    if (!pattern.includes('{') || !path.startsWith(base) || path.slice(base.length).includes('/')) continue;
    return { path: forwardedPath(pattern.split('/'), path), needsSession: true };
  }
  return null;
}
