// The map: points on a canvas that can be moved and zoomed, a path and marks above them.

const LABELS = ["#3b82e0", "#e0662f", "#2aa05a", "#b04fc4", "#d3a013", "#1ea6b0", "#d9467a", "#7a8a2a", "#8f6ee8", "#a06a45"];
const OTHER = "#9aa0a8";
const RAMP = [[59, 98, 214], [34, 140, 190], [38, 166, 129], [140, 180, 60], [232, 163, 23], [226, 96, 40]];
const SHADES = 24;

export const shade = (t) => {
  const at = Math.min(0.9999, Math.max(0, t)) * (RAMP.length - 1), i = Math.floor(at), f = at - i;
  return `rgb(${RAMP[i].map((c, k) => Math.round(c + (RAMP[i + 1][k] - c) * f)).join(",")})`;
};
export const labelColour = (number) => LABELS[number] ?? OTHER;
export const LABEL_COUNT = LABELS.length;

export class PointMap {
  constructor(canvas, tip, events) {
    this.canvas = canvas;
    this.tip = tip;
    this.events = events; // {take(i), hover(i)}
    this.x = this.y = new Float64Array(0);
    this.groups = [];
    this.base = document.createElement("canvas");
    this.view = { x: 0, y: 0, scale: 1 };
    this.hovered = -1;
    this.marks = [];   // [{letter, x, y}]
    this.path = [];    // [[x, y]]
    this.lit = [];     // numbers of points
    this.pointers = new Map();
    this.stale = true;
    new ResizeObserver(() => this.resize()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.redraw());
    this.listen();
  }

  setPoints(x, y) {
    const fresh = this.x.length === 0;
    this.x = Float64Array.from(x);
    this.y = Float64Array.from(y);
    this.count = x.length;
    this.hovered = -1;
    this.fit();
    if (fresh) this.canvas.dataset.ready = "true";
  }

  // colours: a number of a group for each point, and the groups' colours; `only` leaves one of them in colour
  setColours(of, colours, only = null) {
    this.groups = colours.map((colour, number) => ({ colour, alpha: only === null || only === number ? 0.8 : 0.08, points: [] }));
    of.forEach((number, point) => this.groups[number].points.push(point));
    if (only !== null) this.groups.push(this.groups.splice(only, 1)[0]);
    this.redraw();
  }

  fit() {
    const { width, height } = this.size();
    const [x0, x1] = range(this.x), [y0, y1] = range(this.y), margin = 28;
    const scale = Math.min((width - 2 * margin) / (x1 - x0 || 1), (height - 2 * margin) / (y1 - y0 || 1));
    this.view = { scale: Math.max(scale, 1e-9), x: (x0 + x1) / 2, y: (y0 + y1) / 2 };
    this.whole = this.view.scale;
    this.redraw();
  }

  size() { return { width: this.canvas.clientWidth || 1, height: this.canvas.clientHeight || 1 }; }
  toScreen(x, y) {
    const { width, height } = this.size();
    return [width / 2 + (x - this.view.x) * this.view.scale, height / 2 - (y - this.view.y) * this.view.scale];
  }

  resize() {
    const ratio = devicePixelRatio || 1, { width, height } = this.size();
    for (const c of [this.canvas, this.base]) { c.width = Math.round(width * ratio); c.height = Math.round(height * ratio); }
    if (this.x.length && this.whole && this.view.scale === this.whole) this.fit();
    this.redraw();
  }

  redraw() { this.stale = true; this.paint(); }
  paint() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  draw() {
    const ratio = devicePixelRatio || 1, { width, height } = this.size();
    if (this.stale) {
      this.stale = false;
      const c = this.base.getContext("2d");
      c.setTransform(ratio, 0, 0, ratio, 0, 0);
      c.clearRect(0, 0, width, height);
      const zoom = Math.sqrt(this.view.scale / (this.whole || 1));
      const r = Math.min(7, Math.max(1.2, (this.x.length > 8000 ? 1.3 : this.x.length > 1500 ? 1.8 : 2.6) * Math.max(1, zoom)));
      const ox = width / 2 - this.view.x * this.view.scale, oy = height / 2 + this.view.y * this.view.scale, s = this.view.scale;
      // in slices, so that no group lies above all of another
      const slices = Math.min(40, Math.max(1, Math.floor(this.x.length / 100)));
      for (let slice = 0; slice < slices; slice++) for (const { colour, alpha, points } of this.groups) {
        c.globalAlpha = alpha;
        c.fillStyle = colour;
        const end = Math.floor((points.length * (slice + 1)) / slices);
        for (let k = Math.floor((points.length * slice) / slices); k < end; k++) {
          const i = points[k], px = ox + this.x[i] * s, py = oy - this.y[i] * s;
          if (px < -9 || py < -9 || px > width + 9 || py > height + 9) continue;
          if (r < 2.2) c.fillRect(px - r, py - r, 2 * r, 2 * r);
          else { c.beginPath(); c.arc(px, py, r, 0, 6.2832); c.fill(); }
        }
      }
    }
    const c = this.canvas.getContext("2d");
    c.setTransform(1, 0, 0, 1, 0, 0);
    c.clearRect(0, 0, this.canvas.width, this.canvas.height);
    c.drawImage(this.base, 0, 0);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.drawAbove(c);
  }

  drawAbove(c) {
    const style = getComputedStyle(document.documentElement);
    const text = style.getPropertyValue("--text"), back = style.getPropertyValue("--raised"), accent = style.getPropertyValue("--accent");
    if (this.path.length > 1) {
      const places = this.path.map(([x, y]) => this.toScreen(x, y));
      for (const [colour, wide] of [[back, 5], [text, 2]]) {
        c.strokeStyle = colour; c.lineWidth = wide; c.lineJoin = "round";
        c.beginPath();
        places.forEach(([x, y], i) => (i ? c.lineTo(x, y) : c.moveTo(x, y)));
        c.stroke();
      }
      for (const [x, y] of places) dot(c, x, y, 3.5, text, back);
    }
    for (const i of this.lit) dot(c, ...this.toScreen(this.x[i], this.y[i]), 6, "transparent", text);
    if (this.hovered >= 0) dot(c, ...this.toScreen(this.x[this.hovered], this.y[this.hovered]), 7, "transparent", accent, 2.5);
    c.font = "600 12px system-ui, sans-serif";
    c.textAlign = "center";
    c.textBaseline = "middle";
    for (const { letter, x, y } of this.marks) {
      const [px, py] = this.toScreen(x, y);
      dot(c, px, py, 9, text, back);
      c.fillStyle = back;
      c.fillText(letter, px, py + 0.5);
    }
  }

  nearest(px, py, reach) {
    const { width, height } = this.size(), s = this.view.scale;
    const ox = width / 2 - this.view.x * s, oy = height / 2 + this.view.y * s;
    let best = -1, least = reach * reach;
    for (let i = 0; i < this.x.length; i++) {
      const dx = ox + this.x[i] * s - px, dy = oy - this.y[i] * s - py, d = dx * dx + dy * dy;
      if (d < least) { least = d; best = i; }
    }
    return best;
  }

  hover(i, spoken = false) {
    if (i === this.hovered) return;
    this.hovered = i;
    this.tip.hidden = i < 0;
    if (i >= 0) {
      this.events.hover(i, this.tip, spoken);
      const [px, py] = this.toScreen(this.x[i], this.y[i]), { width, height } = this.size();
      const w = this.tip.offsetWidth, h = this.tip.offsetHeight;
      this.tip.style.left = `${Math.max(4, Math.min(width - w - 4, px + 12))}px`;
      this.tip.style.top = `${py + h + 18 > height ? Math.max(4, py - h - 12) : py + 12}px`;
    }
    this.paint();
  }

  zoom(factor, px, py) {
    const { width, height } = this.size();
    const x = this.view.x + (px - width / 2) / this.view.scale, y = this.view.y - (py - height / 2) / this.view.scale;
    const scale = Math.min(this.whole * 400, Math.max(this.whole * 0.4, this.view.scale * factor));
    this.view = { scale, x: x - (px - width / 2) / scale, y: y + (py - height / 2) / scale };
    this.hover(-1);
    this.redraw();
  }

  step(key) {
    const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
    const { width, height } = this.size();
    const from = this.hovered >= 0 ? this.toScreen(this.x[this.hovered], this.y[this.hovered]) : [width / 2, height / 2];
    let best = -1, least = Infinity;
    for (let i = 0; i < this.x.length; i++) {
      if (i === this.hovered) continue;
      const [px, py] = this.toScreen(this.x[i], this.y[i]), ax = px - from[0], ay = py - from[1];
      const along = ax * dx + ay * dy, aside = Math.abs(ax * dy - ay * dx);
      if (along <= 0.5 || px < 0 || py < 0 || px > width || py > height) continue;
      const cost = along + 2 * aside;
      if (cost < least) { least = cost; best = i; }
    }
    if (best >= 0) this.hover(best, true);
  }

  listen() {
    const at = (event) => { const box = this.canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
    const c = this.canvas;
    c.addEventListener("wheel", (event) => { event.preventDefault(); this.zoom(Math.exp(-event.deltaY * 0.0015), ...at(event)); }, { passive: false });
    c.addEventListener("pointerdown", (event) => { c.setPointerCapture(event.pointerId); this.pointers.set(event.pointerId, at(event)); this.moved = 0; });
    c.addEventListener("pointermove", (event) => {
      const now = at(event), before = this.pointers.get(event.pointerId);
      if (!before) { this.hover(this.nearest(...now, 14)); return; }
      const others = [...this.pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
      this.pointers.set(event.pointerId, now);
      this.moved += Math.hypot(now[0] - before[0], now[1] - before[1]);
      if (others.length) {
        const apart = (p) => Math.hypot(p[0] - others[0][0], p[1] - others[0][1]) || 1;
        this.zoom(apart(now) / apart(before), (now[0] + others[0][0]) / 2, (now[1] + others[0][1]) / 2);
      } else if (this.moved > 4) {
        this.view.x -= (now[0] - before[0]) / this.view.scale;
        this.view.y += (now[1] - before[1]) / this.view.scale;
        this.hover(-1);
        this.redraw();
      }
    });
    c.addEventListener("pointerup", (event) => {
      const alone = this.pointers.size === 1;
      this.pointers.delete(event.pointerId);
      if (!alone || this.moved > 4) return;
      const found = this.nearest(...at(event), event.pointerType === "touch" ? 24 : 14);
      this.hover(found);
      if (found >= 0) this.events.take(found);
    });
    c.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    c.addEventListener("pointerleave", () => this.hover(-1));
    c.addEventListener("blur", () => this.hover(-1));
    c.addEventListener("keydown", (event) => {
      const { width, height } = this.size();
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (event.key.startsWith("Arrow")) this.step(event.key);
      else if (event.key === "Enter" || event.key === " ") { if (this.hovered >= 0) this.events.take(this.hovered); }
      else if (event.key === "+" || event.key === "=") this.zoom(1.4, width / 2, height / 2);
      else if (event.key === "-") this.zoom(1 / 1.4, width / 2, height / 2);
      else if (event.key === "0") this.fit();
      else return;
      event.preventDefault();
    });
  }
}

function range(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { if (value < low) low = value; if (value > high) high = value; }
  return [low, high];
}

function dot(c, x, y, r, fill, stroke, wide = 1.5) {
  c.beginPath();
  c.arc(x, y, r, 0, 6.2832);
  c.fillStyle = fill;
  c.fill();
  c.strokeStyle = stroke;
  c.lineWidth = wide;
  c.stroke();
}

// Groups for numbers: shades between the 2nd and the 98th percentile.
export function shadesOf(values) {
  const sorted = Float64Array.from(values).sort();
  const low = sorted[Math.floor(0.02 * (sorted.length - 1))], high = sorted[Math.ceil(0.98 * (sorted.length - 1))];
  const of = Array.from(values, (value) => Math.min(SHADES - 1, Math.max(0, Math.floor(((value - low) / (high - low || 1)) * SHADES))));
  return { of, colours: Array.from({ length: SHADES }, (_, i) => shade(i / (SHADES - 1))), low, high };
}
