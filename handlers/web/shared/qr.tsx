import { useMemo } from 'preact/hooks';
import { encode } from 'uqr';

/** Modules of a side from which a code needs more room, for cameras of phones to tell them apart. */
const DENSE = 100;

/** A QR code as a picture. `label` describes it for screen readers. */
export function QrCode({ text, label }: { text: string; label: string }) {
  const { size, path } = useMemo(() => {
    const code = encode(text, { ecc: 'L', border: 4 });
    const rows = code.data.map((row, y) => row.map((dark, x) => (dark ? `M${x} ${y}h1v1h-1z` : '')).join(''));
    return { size: code.size, path: rows.join('') };
  }, [text]);
  return (
    <svg
      class={size > DENSE ? 'qr dense' : 'qr'}
      viewBox={`0 0 ${size} ${size}`}
      role="img"
      aria-label={label}
      shape-rendering="crispEdges"
    >
      <title>{label}</title>
      <path fill="#000" d={path} />
    </svg>
  );
}
