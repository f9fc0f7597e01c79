/** A position on the screen, in CSS pixels of the window. */
export interface Point {
  x: number;
  y: number;
}

export interface GestureTarget {
  /** A finger has moved this many pixels up or down. */
  scroll(distance: number, at: Point): void;
  /** Ratio of the distance between two fingers to that at the beginning. */
  pinch(scale: number): void;
  /** A finger has rested at a position. */
  press(at: Point): void;
  /** After `press`: the finger has moved here. */
  extend(at: Point): void;
}

/** Milliseconds that a finger has to rest, and pixels that it may move meanwhile. */
const PRESS_TIME = 500;
const SLOP = 10;

/**
 * Handles touches on an element: one finger scrolls, or selects after resting, two change the size. Ignores the mouse and
 * taps. Returns the function that stops it.
 */
export function followFingers(element: HTMLElement, target: GestureTarget): () => void {
  const stopping = new AbortController();
  const { signal } = stopping;
  const fingers = new Map<number, Point>();
  let kind: 'none' | 'tap' | 'scroll' | 'select' | 'pinch' = 'none';
  let start: Point = { x: 0, y: 0 };
  let last: Point = start;
  let startDistance = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  /** A browser synthesizes mouse clicks after some gestures. */
  let ignoresMouse = false;

  const pointOf = ({ clientX: x, clientY: y }: PointerEvent): Point => ({ x, y });
  const distance = (): number => {
    const [a, b] = [...fingers.values()];
    return a && b ? Math.hypot(a.x - b.x, a.y - b.y) : 0;
  };

  function begin(event: PointerEvent): void {
    if (event.pointerType === 'mouse') return;
    fingers.set(event.pointerId, pointOf(event));
    clearTimeout(timer);
    ignoresMouse = fingers.size > 1;
    if (fingers.size === 2) {
      kind = 'pinch';
      startDistance = distance();
    } else if (fingers.size === 1) {
      kind = 'tap';
      start = last = pointOf(event);
      timer = setTimeout(() => {
        kind = 'select';
        ignoresMouse = true;
        target.press(start);
      }, PRESS_TIME);
    }
  }

  function move(event: PointerEvent): void {
    if (!fingers.has(event.pointerId)) return;
    const point = pointOf(event);
    fingers.set(event.pointerId, point);
    if (kind === 'tap' && Math.hypot(point.x - start.x, point.y - start.y) > SLOP) {
      clearTimeout(timer);
      kind = 'scroll';
      ignoresMouse = true;
    }
    if (kind === 'scroll') target.scroll(point.y - last.y, point);
    else if (kind === 'select') target.extend(point);
    else if (kind === 'pinch' && startDistance > 0) target.pinch(distance() / startDistance);
    last = point;
  }

  function end(event: PointerEvent): void {
    fingers.delete(event.pointerId);
    clearTimeout(timer);
    if (fingers.size === 0) kind = 'none';
    // The finger that remains after a pinch does nothing.
    else if (kind === 'pinch') startDistance = 0;
  }

  function swallow(event: Event): void {
    event.stopPropagation();
  }

  element.addEventListener('pointerdown', begin, { signal });
  element.addEventListener('pointermove', move, { signal });
  for (const type of ['pointerup', 'pointercancel'] as const) element.addEventListener(type, end, { signal });
  // The terminal has its own gestures for its scrollbar, which would scroll twice.
  for (const type of ['touchstart', 'touchmove', 'touchend']) {
    element.addEventListener(type, swallow, { signal, capture: true, passive: true });
  }
  for (const type of ['mousedown', 'mouseup', 'click']) {
    element.addEventListener(
      type,
      (event) => {
        if (!ignoresMouse) return;
        event.stopPropagation();
        event.preventDefault();
      },
      { signal, capture: true },
    );
  }
  element.addEventListener(
    'contextmenu',
    (event) => {
      if (kind === 'select' || ignoresMouse) event.preventDefault();
    },
    { signal, capture: true },
  );

  return () => {
    clearTimeout(timer);
    stopping.abort();
  };
}
