/** One call that phones understand. */
export interface DeviceRoute {
  readonly method: 'GET' | 'POST';
  readonly path: string;
  /** Store builds support it (contract 03 §3). */
  readonly onStoreBuild?: true;
  /** Its results are private: only names and counts are recorded (contract 03 §6). */
  readonly isPrivate?: true;
  /** It is answered while the relay is frozen (contract 09 §3). */
  readonly ignoresFreeze?: true;
}

/** THE table of Device Control (contract 03 §5): 34 paths, 35 pairs. */
export const DEVICE_ROUTES: readonly DeviceRoute[] = [
  { method: 'GET', path: '/ping', onStoreBuild: true, ignoresFreeze: true },
  { method: 'POST', path: '/setup', onStoreBuild: true },
  { method: 'GET', path: '/current_app' },

  { method: 'GET', path: '/screen', isPrivate: true },
  { method: 'GET', path: '/screen_hash' },
  { method: 'POST', path: '/diff_screen' },
  { method: 'POST', path: '/find_nodes', isPrivate: true },
  { method: 'POST', path: '/describe_node', isPrivate: true },
  { method: 'GET', path: '/screenshot' },
  { method: 'GET', path: '/get_apps' },
  { method: 'GET', path: '/apps' },

  { method: 'POST', path: '/tap' },
  { method: 'POST', path: '/tap_text' },
  { method: 'POST', path: '/long_press' },
  { method: 'POST', path: '/drag' },
  { method: 'POST', path: '/type' },
  { method: 'POST', path: '/swipe' },
  { method: 'POST', path: '/scroll' },
  { method: 'POST', path: '/press_key' },
  { method: 'POST', path: '/wait' },
  { method: 'POST', path: '/open_app' },
  { method: 'POST', path: '/return_to_hermes' },
  { method: 'GET', path: '/clipboard', isPrivate: true },
  { method: 'POST', path: '/clipboard', isPrivate: true },
  { method: 'POST', path: '/media' },
  { method: 'POST', path: '/send_intent' },
  { method: 'POST', path: '/broadcast' },

  { method: 'GET', path: '/events', onStoreBuild: true, isPrivate: true },
  { method: 'POST', path: '/events/stream' },

  { method: 'GET', path: '/location', isPrivate: true },
  { method: 'POST', path: '/search_contacts', isPrivate: true },
  { method: 'POST', path: '/call' },
  { method: 'POST', path: '/send_sms' },
  { method: 'POST', path: '/share_media' },
  { method: 'POST', path: '/send_mms' },
];

const byPath: ReadonlyMap<string, readonly DeviceRoute[]> = new Map(
  DEVICE_ROUTES.map(({ path }) => [path, DEVICE_ROUTES.filter((route) => route.path === path)]),
);

/** The calls of a path, one per method; none for paths outside Device Control. */
export const deviceRoutes = (path: string): readonly DeviceRoute[] => byPath.get(path) ?? [];
