/** Outlines on a grid of 24, drawn with the colour of the text. */
const PATHS = {
  home: 'M4 11l8-7 8 7v9h-5v-6H9v6H4z',
  chat: 'M4 5h16v11H10l-5 4v-4H4z',
  inbox: 'M4 5h16v14H4zM4 14h4l2 2h4l2-2h4',
  terminal: 'M4 5h16v14H4zM7 9l3 3-3 3M12 15h5',
  more: 'M5 11a1 1 0 100 2 1 1 0 000-2zM12 11a1 1 0 100 2 1 1 0 000-2zM19 11a1 1 0 100 2 1 1 0 000-2z',
  files: 'M6 3h8l4 4v14H6zM14 3v4h4',
  settings:
    'M12 9a3 3 0 100 6 3 3 0 000-6zM19 12l2-1-1-3-2 .3-1.5-1.5L17 4.500l-3-1L12 5.5 10 3.500l-3 1 .5 2.300L6 8.3 4 8l-1 3 2 1-2 1 1 3 2-.3 1.5 1.5-.5 2.3 3 1 2-2 2 2 3-1-.5-2.300L18 15.700l2 .3 1-3z',
  devices: 'M3 5h12v9H3zM6 18h6M9 14v4M17 9h4v10h-4z',
  bell: 'M6 17V11a6 6 0 1112 0v6l1.5 2h-15zM10 21h4',
  usage: 'M5 20V11M12 20V4M19 20v-6',
  profile: 'M12 4a4 4 0 100 8 4 4 0 000-8zM4 21c1-5 4-6 8-6s7 1 8 6',
  voice: 'M12 3a3 3 0 00-3 3v5a3 3 0 006 0V6a3 3 0 00-3-3zM6 11a6 6 0 0012 0M12 17v4',
  agent: 'M5 8h14v11H5zM12 8V4M9 13h.01M15 13h.01',
  phone: 'M7 3h10v18H7zM11 18h2',
  camera: 'M4 8h4l2-3h4l2 3h4v11H4zM12 10a3.5 3.5 0 100 7 3.5 3.5 0 000-7z',
  refresh: 'M20 11a8 8 0 10-2 6M20 5v6h-6',
  close: 'M6 6l12 12M18 6L6 18',
  back: 'M15 5l-7 7 7 7',
  next: 'M9 5l7 7-7 7',
  down: 'M12 5v13M6 12l6 6 6-6',
  edit: 'M4 20h4L19 9l-4-4L4 16z',
  plus: 'M12 5v14M5 12h14',
  send: 'M4 12l16-8-6 16-3-6z',
  stop: 'M7 7h10v10H7z',
  search: 'M11 4a7 7 0 100 14 7 7 0 000-14zM16 16l5 5',
  check: 'M5 12l5 5 9-10',
  warning: 'M12 4l9 16H3zM12 10v5M12 17.500v.01',
  offline: 'M4 4l16 16M8 8a10 10 0 00-4 3M12 6a12 12 0 018 5M8.5 14.500a5 5 0 016 0M12 19h.01',
  lock: 'M6 11h12v9H6zM8 11V8a4 4 0 018 0v3',
  freeze: 'M12 3v18M4 7.500l16 9M20 7.500l-16 9',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  paste: 'M8 5H5v16h14V5h-3M9 3h6v4H9z',
  wrap: 'M4 6h16M4 12h13a3 3 0 010 6h-5M14 15l-3 3 3 3M4 18h4',
  trash: 'M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13',
  upload: 'M12 16V4M7 9l5-5 5 5M4 20h16',
  download: 'M12 4v12M7 11l5 5 5-5M4 20h16',
  link: 'M10 14a4 4 0 005.5 0l3-3a4 4 0 00-5.5-5.500l-1 1M14 10a4 4 0 00-5.5 0l-3 3a4 4 0 005.5 5.500l1-1',
  log: 'M5 4h14v16H5zM8 8h8M8 12h8M8 16h5',
  shield: 'M12 3l8 3v6c0 5-4 8-8 9-4-1-8-4-8-9V6z',
  queue: 'M4 6h16M4 12h16M4 18h10',
  pause: 'M8 5v14M16 5v14',
  play: 'M7 5l12 7-12 7z',
} as const;

export type IconName = keyof typeof PATHS;

/** Icons that follow the reading direction. */
const DIRECTED: ReadonlySet<IconName> = new Set(['back', 'next', 'send']);

/** An icon beside text with the same meaning. */
export const Icon = ({ name }: { name: IconName }) => (
  <svg class={DIRECTED.has(name) ? 'icon directed' : 'icon'} viewBox="0 0 24 24" aria-hidden="true" focusable="false">
    <path d={PATHS[name]} />
  </svg>
);
